"""What the client sends, and what it makes of a refusal."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rayhier.serve.client import Client
from rayhier.serve.errors import ApiError

VISITED = {"leaves": [], "documents": 0, "fraction": 0.0, "enough": False}
ANSWERED = {"results": [], "visited": VISITED, "partial": False, "lost": []}


@pytest.fixture
def server():
    """A server that notes requests and answers with `server.answer`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.asked.append((self.path, self.headers["Authorization"], body))
            status, headers, said = self.server.answer
            self.send_response(status)
            for name, value in {"Content-Length": str(len(said)), **headers}.items():
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
    assert len(client.search_batch(["oak"], filter={"year": 1}).answers) == 1
    none = {"k": None, "beam": None, "strict": False}
    assert server.asked == [
        ("/v1/search", "Bearer sesame-1", {**none, "query": "oak", "k": 5}),
        ("/v1/search", "Bearer sesame-1", {**none, "vector": [1.0, 0.5], "beam": 2, "strict": True}),
        ("/v1/search:batch", "Bearer sesame-1", {**none, "queries": ["oak"], "filter": {"year": 1}}),
    ]


REFUSALS = {
    "its own": (b'{"error": {"code": "overloaded", "message": "full"}}', "overloaded", "full"),
    "Serve's": (b"Request dropped", "http", "Request dropped"),
    "another server's": (b"[]", "http", r"\[\]"),
    "one of other types": (b'{"error": {"code": 3, "message": []}}', "http", '"code": 3'),
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


FULL = {**ANSWERED, "version": 1, "ms": {}}
RESULT = {"id": "d1", "score": 0.5, "leaf": 3, "title": "", "text": "", "fields": {}}

MISFITS = {
    "a proxy's page": (b"<html>Sign in</html>", r"/v1/search: the answer is not JSON: '<html>Sign in</html>'"),
    "nothing": (b"", "/v1/search: the answer is not JSON: ''"),
    "bytes": (b"\xff\xfe{", "/v1/search: the answer is not JSON"),
    "JSON of another kind": (b"[]", r"/v1/search: the answer: got \[\]"),
    "an older server's": (json.dumps({**FULL, "version": None}).encode(), "/v1/search: version: got None"),
    "without a key": (json.dumps({**ANSWERED, "ms": {}}).encode(), "/v1/search: version: missing .*another version"),
    "a newer server's": (json.dumps({**FULL, "cost": 3}).encode(), "/v1/search: cost: got 3: Extra"),
    "of another type inside": (
        json.dumps({**FULL, "results": [RESULT, {**RESULT, "score": "high"}]}).encode(),
        "/v1/search: results.1.score: got 'high'",
    ),
    "long": (json.dumps({**FULL, "version": "x" * 10_000}).encode(), "/v1/search: version: got 'xxx"),
}


@pytest.mark.parametrize(("said", "message"), MISFITS.values(), ids=MISFITS)
def test_an_answer_of_other_types(server, client, said, message):
    server.answer = (200, {}, said)
    with pytest.raises(ApiError, match=message) as caught:
        client.search("oak")
    assert (caught.value.status, caught.value.code) == (200, "misfit")
    assert len(str(caught.value)) < 400


def test_an_answer_that_is_cut_off(server, client):
    server.answer = (200, {"Content-Length": "900"}, b'{"results": [')
    with pytest.raises(ApiError, match="/v1/search: the answer ended after 13 bytes"):
        client.search("oak")
