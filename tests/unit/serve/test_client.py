"""What the client sends, and what it makes of a refusal."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rayhier.serve.client import Client
from rayhier.serve.errors import ApiError

ANSWERED = {"results": [], "visited": {"leaves": [], "documents": 0, "fraction": 0.0}, "partial": False, "lost": []}


@pytest.fixture
def server():
    """A server that notes requests and answers with `server.answer`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.asked.append((self.path, self.headers["Authorization"], body))
            status, headers, said = self.server.answer
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(said))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.asked = []
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def client(server):
    return Client(f"http://127.0.0.1:{server.server_port}/", "sesame-1")


def test_questions(server, client):
    server.answer = (200, {}, json.dumps({**ANSWERED, "version": 1, "ms": {}}).encode())
    assert client.search("oak", k=5).version == 1
    client.search((1, 0.5), beam=2, strict=True)
    server.answer = (200, {}, json.dumps({"answers": [ANSWERED], "version": 1, "ms": {}}).encode())
    assert len(client.search_batch(["oak"]).answers) == 1
    none = {"k": None, "beam": None, "strict": False}
    assert server.asked == [
        ("/v1/search", "Bearer sesame-1", {**none, "query": "oak", "k": 5}),
        ("/v1/search", "Bearer sesame-1", {**none, "vector": [1.0, 0.5], "beam": 2, "strict": True}),
        ("/v1/search:batch", "Bearer sesame-1", {**none, "queries": ["oak"]}),
    ]


REFUSALS = {
    "its own": (b'{"error": {"code": "overloaded", "message": "full"}}', "overloaded", "full"),
    "Serve's": (b"Request dropped", "http", "Request dropped"),
    "another server's": (b"[]", "http", r"\[\]"),
}


@pytest.mark.parametrize(("said", "code", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(server, client, said, code, message):
    server.answer = (503, {"retry-after": "1"}, said)
    with pytest.raises(ApiError, match=message) as caught:
        client.search("oak")
    assert (caught.value.status, caught.value.code, caught.value.headers) == (503, code, {"Retry-After": "1"})


def test_a_url_of_another_kind():
    with pytest.raises(ValueError, match="url: got 'file:///x'; allowed: http"):
        Client("file:///x")
