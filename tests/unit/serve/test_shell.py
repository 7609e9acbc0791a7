"""What the shell sends to a server, and says where it refuses a part; with a real server: test_embedded.py."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from rayhier.serve import shell
from rayhier.serve.errors import ApiError


class Server:
    """A server that takes what it is sent, but for the request whose number is `refused`."""

    fields, refused = {"year": "int"}, None

    def __init__(self):
        self.requests = []

    def index(self):
        return self

    def put(self, sent, *, upsert):
        if len(self.requests) == self.refused:
            raise ApiError(422, "invalid", "documents[3].text: too long")
        self.requests.append(sent)
        return SimpleNamespace(documents=len(sent), replaced=1, log=len(self.requests))


@pytest.fixture
def server(monkeypatch):
    server = Server()
    monkeypatch.setattr(shell, "Client", lambda *_, **__: nullcontext(server))
    return server


def add(folder, rows):
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return shell.main(["add", "http://here", str(folder / "rows.jsonl")])


def test_documents_are_sent_in_requests_of_a_size(server, tmp_path, capsys):
    rows = [{"id": f"d{n}", "text": "oak", "year": n} for n in range(1_100)] + [{"id": "long", "text": "x" * 2_000_000}]
    assert add(tmp_path, [*rows, {"id": "last", "title": "moss"}]) == 0
    assert [len(sent) for sent in server.requests] == [500, 500, 100, 1, 1]
    assert server.requests[0][7] == {"id": "d7", "title": "", "text": "oak", "fields": {"year": 7}}
    assert server.requests[4] == [{"id": "last", "title": "moss", "text": "", "fields": {}}]
    assert capsys.readouterr().out == "log 5: 1,102 documents written, 5 of them in place of others\n"


def test_what_was_written_before_a_refusal_is_told(server, tmp_path, capsys):
    server.refused = 1
    assert add(tmp_path, [{"id": f"d{n}", "text": "oak"} for n in range(900)]) == 2
    assert capsys.readouterr().err == ("error: documents[3].text: too long. 500 documents before these were written\n")


def test_nothing_is_sent_of_a_file_with_a_wrong_row(server, tmp_path, capsys):
    assert add(tmp_path, [{"id": "a", "text": "oak"}, {"id": "b", "text": "oak", "year": "late"}]) == 2
    assert "row 2: field of the wrong type" in capsys.readouterr().err
    assert server.requests == []
