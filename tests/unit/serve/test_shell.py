"""What the shell sends to a server, and says where it refuses a part; with a real server: test_embedded.py."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from rayhier.index import __main__ as index
from rayhier.serve import shell
from rayhier.serve.errors import ApiError


class Server:
    """A server that takes what it is sent, but for the request whose number is `refused`."""

    fields, refused, error = {"year": "int"}, None, ApiError(422, "invalid", "documents[3].text: too long")

    def __init__(self):
        self.requests = []

    def index(self):
        return self

    def put(self, sent, *, upsert):
        if len(self.requests) == self.refused:
            raise self.error
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
    assert (
        capsys.readouterr().err == "error: 500 documents were written. A request failed: documents[3].text: too long\n"
    )
    there = "ids: 3 in the index already: 'd7'"
    server.requests, server.error = [], ApiError(409, "exists", f"{there}. Nothing was changed; allowed: new ids")
    assert add(tmp_path, [{"id": f"d{n}", "text": "oak"} for n in range(900)]) == 2
    said = f"A request failed: {there}; allowed: new ids. Add --upsert to replace documents"
    assert capsys.readouterr().err == f"error: 500 documents were written. {said}\n"


def test_a_csv_file_is_sent_with_typed_fields(server, tmp_path):
    (tmp_path / "rows.csv").write_text('id,text,year\na,"oak, ash",2001\nb,elm,\n')
    assert shell.main(["add", "http://here", str(tmp_path / "rows.csv")]) == 0
    assert server.requests == [
        [
            {"id": "a", "title": "", "text": "oak, ash", "fields": {"year": 2001}},
            {"id": "b", "title": "", "text": "elm", "fields": {}},
        ]
    ]


@pytest.mark.parametrize(
    "command", [["add", "work", "a.jsonl"], ["delete", "work"], ["get", "work", "a"], ["list", "work"]]
)
def test_a_workdir_takes_no_token(command, tmp_path, capsys):
    assert index.main([*command, "--token-file", str(tmp_path)]) == 2
    assert "--token-file: got workdir work; allowed: the address of a server" in capsys.readouterr().err


def test_nothing_is_sent_of_a_file_with_a_wrong_row(server, tmp_path, capsys):
    assert add(tmp_path, [{"id": "a", "text": "oak"}, {"id": "b", "text": "oak", "year": "late"}]) == 2
    assert "row 2: field of the wrong type" in capsys.readouterr().err
    assert server.requests == []
