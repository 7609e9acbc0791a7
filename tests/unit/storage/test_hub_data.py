"""Which commit a data set of the hub is at, asked of a hub on this machine."""

import json
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from huggingface_hub import constants

from rayhier.spec import InputError
from rayhier.storage import hub_data

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Knows the branch `main` of team/set, nothing else."""

    def do_GET(self):
        found = self.path in ("/api/datasets/team/set", "/api/datasets/team/set/revision/main")
        body = json.dumps({"id": "team/set", "sha": COMMIT, "siblings": []} if found else {"error": "?"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def served(monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("path", ["team/set", "team/set@main"])
def test_the_hub_says_which_commit_a_branch_is(served, path):
    assert hub_data.commit("corpus.path", path) == COMMIT


@pytest.mark.parametrize("path", ["team/other", "team/set@v2"])
def test_what_the_hub_does_not_know_is_refused(served, path):
    with pytest.raises(
        InputError, match=f"corpus.path: got '{path}': no such folder, and http://127.* allowed: a fold"
    ):
        hub_data.commit("corpus.path", path)


def test_a_commit_is_not_asked_for(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert hub_data.commit("corpus.path", f"team/set@{COMMIT}") == COMMIT
    with pytest.raises(InputError, match="did not provide"):
        hub_data.ask("corpus.path", f"team/set@{COMMIT}")


def test_a_hub_that_never_answers(monkeypatch):
    monkeypatch.setattr(hub_data, "HUB_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(InputError, match="Timeout"):
            hub_data.commit("corpus.path", "team/set")


def test_a_folder_is_no_hub_id(tmp_path):
    assert hub_data.folder("corpus.path", str(tmp_path)) == tmp_path
    assert hub_data.folder("corpus.path", "team/set") is None
    assert hub_data.folder("corpus.path", "team/set@refs/pr/1") is None
    for path in ("/absent/folder", "./absent", "a/b/c", "a b", "../x"):
        with pytest.raises(InputError, match="no such folder; allowed: a folder, or a hub id"):
            hub_data.folder("corpus.path", path)
