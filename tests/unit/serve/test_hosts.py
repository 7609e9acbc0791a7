"""Which names of hosts a server answers to: on loopback without a token only loopback's, elsewhere those it is told."""

import pytest
from fastapi.testclient import TestClient

from rayhier.serve.args import ServeArgs
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
