"""A token that only reads changes nothing, whatever the path and the method look like."""

import itertools

import pytest
from fastapi.testclient import TestClient
from starlette.routing import Route

from rayhier.serve.http.tokens import Tokens

from .sockets import connected, listening, status
from .stand_ins import Canned, CannedWriter, app_of, error

READS = ("GET", "HEAD", "OPTIONS")
READING = ("/v1/search", "/v1/search:batch", "/v1/route", "/v1/embeddings", "/v1/rerank", "/v2/rerank")
BODIES = {
    ("PUT", "/v1/documents"): b'{"documents": [{"id": "a", "text": "oak"}]}',
    ("DELETE", "/v1/documents"): b'{"ids": ["a"]}',
    ("POST", "/v1/versions/rollback"): b'{"version": 1}',
}
"""A body that each route that writes takes."""


@pytest.fixture
def served(tmp_path):
    """An application with both tokens, and the Writer behind it."""
    for name in ("read", "write"):
        (tmp_path / name).write_text(f"{name}-token")
    writer = CannedWriter()
    return app_of(Canned(), tokens=Tokens(str(tmp_path / "read"), str(tmp_path / "write")), writer=writer), writer


def sent(port, method, target, body, token):
    """Status of the answer to a request whose target is sent as it stands."""
    head = f"{method} {target} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
    more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with connected(port, head.encode() + more.encode() + body) as one:
        return status(one)


CONTROL = tuple(f"{{}}%{code}" for code in ("0A", "0a%0a", "00", "7F", "C2%85", "E2%80%A8"))
FORMS = (*CONTROL, "{}?x=1", "{}#x", "http://h{}", "http://h{}%0A", "/{}", "{}/", "{}//", "{}%2F", "{}/.", "{}/..")
FORMS += ("/.{}", "/x/..{}", "{};x", "{}%20", "%0A{}", "*{}", "//h{}")
"""What a path is made into: with a control character at its end, as it is, and otherwise changed."""


def test_a_token_that_reads_changes_nothing_by_any_form_of_a_path(served):
    app, writer = served
    with listening(app) as port:
        for (method, path), body in BODIES.items():
            head, _, tail = path.rpartition("/")
            encoded = [f"{head}/%{ord(tail[0]):x}{tail[1:]}", f"{head}%2F{tail}"]
            forms = [path, *encoded, *(form.format(path) for form in FORMS)]
            answers = {form: sent(port, method, form, body, "read-token") for form in forms}
            assert set(answers.values()) <= {400, 403, 404}, answers
            assert writer.told == []
            assert sent(port, method, path, body, "write-token") == 200
            assert len(writer.told) == 1
            writer.told.clear()
        for path, form in itertools.product(("/v1/documents", "/v1/search", "/", "/v1/index"), CONTROL):
            for method in ("GET", "POST", "PUT", "DELETE"):
                assert sent(port, method, form.format(path), b"{}", "write-token") in (400, 404, 405)
        assert writer.told == []


def test_the_routes_check_the_token_themselves(served, monkeypatch):
    app, writer = served
    monkeypatch.setattr("rayhier.serve.http.guard._writes", lambda scope: False)
    client = TestClient(app, headers={"Authorization": "Bearer read-token", "Content-Type": "application/json"})
    for (method, path), body in BODIES.items():
        assert error(client.request(method, path, content=body))[:2] == (403, "forbidden")
    assert writer.told == []


def test_every_route_that_may_write_is_known(served):
    routes = [route for route in served[0].routes if isinstance(route, Route)]
    others = {(method, route.path) for route in routes for method in (route.methods or ()) if method not in READS}
    assert others == set(BODIES) | {("POST", path) for path in READING}


def test_other_methods_write(served):
    for token, expected in (("read-token", 403), ("write-token", 405)):
        client = TestClient(served[0], headers={"Authorization": f"Bearer {token}"})
        for method, path in itertools.product(("POST", "PATCH", "TRACE", "MKCOL"), ("/v1/index", "/v1/documents")):
            answer = client.request(method, path)
            assert answer.status_code == expected
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "PUT", "DELETE"}
