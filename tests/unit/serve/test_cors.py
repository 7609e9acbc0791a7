"""Pages of other origins: none may ask unless the config names their origin."""

from fastapi.testclient import TestClient

from rayhier.serve.args import RequestLimits

from .stand_ins import Canned, app_of, error

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
