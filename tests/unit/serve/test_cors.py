"""Pages of other origins: none may ask unless the config names their origin."""

from fastapi.testclient import TestClient

from rayhier.serve.args import RequestLimits

from .stand_ins import Canned, app_of, error

HERE, OTHER = "https://search.example.org", "https://evil.example.org"


def ask(client, origin, **headers):
    """Search from a page, with the question that the browser asks before."""
    heads = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    before = client.options("/v1/search", headers={**heads, "Access-Control-Request-Headers": "authorization"})
    return before, client.post("/v1/search", json={"query": "oak"}, headers={"Origin": origin, **headers})


def test_off_unless_named(held):
    for answer in ask(TestClient(app_of(Canned(), RequestLimits())), HERE):
        assert "access-control-allow-origin" not in answer.headers
    before, _ = ask(TestClient(app_of(Canned(), RequestLimits(), held)), HERE)
    assert error(before)[:2] == (401, "unauthorized")


def test_a_named_origin(held):
    client = TestClient(app_of(Canned(), RequestLimits(), held, cors_origins=[HERE]))
    before, answer = ask(client, HERE, Authorization="Bearer sesame-1")
    assert (before.status_code, answer.status_code) == (200, 200)
    assert before.headers["access-control-allow-origin"] == answer.headers["access-control-allow-origin"] == HERE
    _, refused = ask(client, HERE)
    assert error(refused)[0] == 401
    assert refused.headers["access-control-allow-origin"] == HERE


def test_another_origin_is_refused_in_the_form_of_every_error(held):
    client = TestClient(app_of(Canned(), RequestLimits(), held, cors_origins=[HERE]))
    before, answer = ask(client, OTHER, Authorization="Bearer sesame-1")
    assert error(before) == (
        400,
        "origin",
        f"origin: got '{OTHER}'; allowed: the config's cors_origins, with GET or POST",
    )
    assert "access-control-allow-origin" not in answer.headers
