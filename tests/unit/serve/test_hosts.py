"""Which names of hosts a server answers to, and pages of which origins.

On loopback without a token only loopback's names, elsewhere those it is told; of origins, those that the config names.
"""

import pytest
from fastapi.testclient import TestClient

from rayhier.serve.args import RequestLimits, ServeArgs
from rayhier.serve.embedded import allowed_hosts

from .sockets import connected, listening, status
from .stand_ins import Canned, app_of, error

OTHERS = ("evil.example:8000", "127.0.0.1.evil.example", "localhost@evil.example", "", "10.1.2.3")


@pytest.fixture(scope="module")
def app():
    return app_of(Canned(), allowed_hosts=allowed_hosts(ServeArgs(workdir="/w"), "127.0.0.1"))


def test_a_server_on_loopback_answers_to_its_names(app):
    for host in ("127.0.0.1", "LOCALHOST:8000", "[::1]", "[::1]:8000"):
        assert TestClient(app, headers={"Host": host}).get("/v1/index").status_code == 200


def test_other_names_are_refused_but_for_health(app):
    for host in OTHERS:
        client = TestClient(app, headers={"Host": host})
        for path in ("/v1/index", "/"):
            assert error(client.get(path))[:2] == (421, "other_host")
        assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]


def test_no_name_and_two_names(app):
    with listening(app) as port:
        for hosts in (b"", b"Host: h\r\nHost: localhost\r\n", b"Host: localhost\r\nHost: h\r\n"):
            with connected(port, b"GET /v1/index HTTP/1.0\r\n" + hosts + b"\r\n") as one:
                assert status(one) == 421


def test_elsewhere_the_names_are_those_of_the_arguments():
    ours, token, mine = ["127.0.0.1", "localhost", "::1"], {"token_file": "/token"}, {"allowed_hosts": ["mine"]}
    for address, given, names in (
        ("localhost", mine, [*ours, "mine"]),
        ("localhost", token, []),
        ("0.0.0.0", token | mine, ["mine"]),
    ):
        assert allowed_hosts(ServeArgs(workdir="/w", **given), address) == names
    for allowed, host in (([], "10.1.2.3"), (["Mine.example"], "mine.EXAMPLE:80")):
        client = TestClient(app_of(Canned(), allowed_hosts=allowed), headers={"Host": host})
        assert client.get("/v1/index").status_code == 200


# Origins

HERE, OTHER = "https://search.example.org", "https://evil.example.org"
TOKEN = {"Authorization": "Bearer sesame-1"}
ALLOWED = "access-control-allow-origin"


def ask(held, origin, origins, **headers):
    """Search from a page, with the question that the browser asks before."""
    client = TestClient(app_of(Canned(), RequestLimits(), held, cors_origins=origins))
    heads = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    before = client.options("/v1/search", headers={"Origin": origin, **heads})
    return before, client.post("/v1/search", json={"query": "oak"}, headers={"Origin": origin, **headers})


def test_a_named_origin_may_ask(held):
    before, answer = ask(held, HERE, [HERE], **TOKEN)
    assert (before.status_code, answer.status_code) == (200, 200)
    assert before.headers[ALLOWED] == answer.headers[ALLOWED] == HERE
    _, refused = ask(held, HERE, [HERE])
    assert (error(refused)[0], refused.headers[ALLOWED]) == (401, HERE)


def test_others_are_refused_in_the_form_of_every_error(held):
    for origins, refusal in (([HERE], (400, "origin")), ([], (401, "unauthorized"))):
        before, answer = ask(held, OTHER, origins, **TOKEN)
        assert error(before)[:2] == refusal
        assert not {ALLOWED} & {*before.headers, *answer.headers}
