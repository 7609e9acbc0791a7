"""The HTTP interface: what it answers, what it refuses and how, over an engine that is a list of canned answers."""

import asyncio
import itertools
import json
import logging
from dataclasses import replace
from unittest.mock import AsyncMock

import numpy as np
import pytest
from fastapi.testclient import TestClient
from openapi_spec_validator import validate

from rayhier.model.encoded import Encoded
from rayhier.search.request.hits import Answer, Hit
from rayhier.search.routing.routes import Routes
from rayhier.serve.backend.engine import Answers
from rayhier.serve.errors import ApiError
from rayhier.serve.http import api
from rayhier.serve.http.error_handlers import respond
from rayhier.spec.filter import And, Bound, Not, OneOf

from .stand_ins import HIT, LIMITS, SEEN, STORED, TOKEN, Canned, CannedWriter, app_of, error, refuses, ruled

JSON = {"content-type": "application/json"}


@pytest.fixture
def locked(engine, held):
    return TestClient(app_of(engine, tokens=held))


def limited(engine, size):
    """A client that gets answers of so many bytes at most."""
    return TestClient(app_of(engine, LIMITS.model_copy(update={"max_answer_bytes": size})))


def test_search(client, engine):
    response = client.post("/v1/search", json={"query": "oak", "k": 5, "beam": 3})
    assert response.status_code == 200
    shown = {"title": "a title", "text": "a text", "fields": {"year": 1999}}
    assert response.json() == {
        "results": [{"id": "d1", "score": 0.5, "leaf": 3, **shown, "estimated": False}],
        "visited": {"leaves": [3, 1], "documents": 4, "fraction": 0.4, "enough": True},
        "partial": False,
        "lost": [],
        "calls": None,
        "explain": None,
        "mode": "dense",
        "model": "0123456789ab",
        "version": 4,
        "log": 0,
        "ms": {"total": 1.0},
    }
    assert engine.asked == [(["oak"], 5, 3)]


def test_a_filter_a_mode_and_a_budget_arrive():
    engine = Canned()
    client = TestClient(app_of(engine, rules=ruled(mode="hybrid", rerank={"type": "rnr", "budget": 20})))
    for path, body in (
        ("search", {"query": "oak", "filter": {"year": {"gte": 2019, "lt": 2022}}}),
        ("search:batch", {"vectors": [[1, 2, 3]], "filter": {"not": {"year": {"in": [1, 2]}}}}),
        ("search", {"query": "oak", "filter": None, "mode": "bm25", "budget": 3}),
        ("search", {"query": "oak", "mode": "dense", "rerank": False}),
    ):
        assert client.post(f"/v1/{path}", json=body).is_success
    bounds = And((Bound("year", "gte", 2019), Bound("year", "lt", 2022)))
    assert engine.filters == [bounds, Not(OneOf("year", (1, 2))), None, None]
    assert engine.modes == ["hybrid", "dense", "bm25", "dense"]
    assert engine.budgets == [20, 0, 3, 0]


def test_a_lost_shard_is_named(client, engine):
    engine.gone = ["shards-1"]
    body = client.post("/v1/search", json={"query": "oak"}).json()
    assert (body["partial"], body["lost"]) == (True, ["shards-1"])
    for path, asked in {"/v1/search": {"query": "oak"}, "/v1/search:batch": {"queries": ["oak"]}}.items():
        strict = client.post(path, json={**asked, "strict": True})
        refuses(strict, "shards-1", 503, "shards_lost")
        assert strict.headers["retry-after"] == "1"
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "lost": ["shards-1"]})


SEARCH, BATCH = "/v1/search", "/v1/search:batch"
REFUSED = {
    "neither": (SEARCH, {}, "body"),
    "half a character": (SEARCH, '{"query": "\\ud800"}', "query"),
    "too long": (SEARCH, {"query": "x" * 101}, "query"),
    "NaN": (SEARCH, '{"vector": [NaN, 0, 0]}', "vector.0"),
    "beyond any float": (SEARCH, f'{{"vector": [0, 0, 1{"0" * 400}]}}', "vector.2"),
    "beyond float32": (SEARCH, {"vector": [0, 0, 1e39]}, "vector.2"),
    "short vector": (SEARCH, {"vector": [1, 2]}, "vector"),
    "k too large": (SEARCH, {"query": "oak", "k": 51}, "k"),
    "k true": (SEARCH, {"query": "oak", "k": True}, "k"),
    "k of 1,500 digits": (SEARCH, f'{{"query": "oak", "k": {"9" * 1_500}}}', "k"),
    "beam too large": (SEARCH, {"query": "oak", "beam": 9}, "beam"),
    "unknown key": (SEARCH, {"query": "oak", "sort": {}}, "body"),
    "unknown part": (SEARCH, {"query": "oak", "include": ["body"]}, "include.0"),
    "an undeclared field": (SEARCH, {"query": "oak", "filter": {"and": [{"yeer": 1}]}}, "filter.and[0].yeer"),
    "a list": (SEARCH, [], "body"),
    "not JSON": (SEARCH, "{", "body: not JSON"),
    "too many texts": (BATCH, {"queries": ["oak"] * 4}, "queries"),
    "one without words": (BATCH, {"queries": ["oak", " "]}, "queries.1"),
}


@pytest.mark.parametrize(("path", "body", "named"), REFUSED.values(), ids=REFUSED)
def test_a_search_that_cannot_be_is_refused(client, engine, path, body, named):
    content = body if isinstance(body, str) else json.dumps(body)
    said = refuses(client.post(path, content=content, headers=JSON), "")
    assert said.startswith(f"{named}: ")
    assert len(said) < 300
    assert "not JSON" in said or ("got" in said and "; allowed: " in said)
    assert engine.asked == []


def test_a_defect_says_nothing_of_itself(client, engine):
    engine.error = RuntimeError("inner secret")
    assert "secret" not in refuses(client.post("/v1/search", json={"query": "oak"}), "", 500, "internal")


WRONG = {
    "none": {},
    "wrong": {"Authorization": "Bearer sesame-2"},
    "longer": {"Authorization": f"Bearer {TOKEN}1"},
    "no scheme": {"Authorization": TOKEN},
    "another scheme": {"Authorization": f"Basic {TOKEN}"},
    "empty": {"Authorization": "Bearer "},
    "not ASCII": {"Authorization": "Bearer sésame".encode("latin-1")},
    "two, of which the second is right": [("Authorization", f"Bearer {token}") for token in ("sesame-2", TOKEN)],
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
def test_without_the_token_nothing_is_answered(engine, held, headers):
    locked = TestClient(app_of(engine, tokens=held), root_path="/deep")
    for path in ("/v1/search", "/v1/index", "/v1/documents/d1", "/openapi.json", "/nowhere", "/deep/v1/index"):
        response = locked.request("POST" if path == "/v1/search" else "GET", path, headers=headers)
        assert error(response)[:2] == (401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in response.text
    assert [locked.get(path).status_code for path in ("/healthz", "/deep/readyz")] == [200, 200]
    assert engine.asked == []


@pytest.mark.parametrize("tokens", [[f"Bearer {TOKEN}"], [f"bearer {TOKEN}"], [f"Bearer {TOKEN}", "Bearer sesame-2"]])
def test_the_token_opens(locked, tokens):
    headers = [("Authorization", token) for token in tokens]
    assert locked.post("/v1/search", json={"query": "oak"}, headers=headers).status_code == 200


def test_a_body_is_read_no_further_than_the_limit(client, engine):
    for large in (b"x" * 2_001, itertools.repeat(b"x" * 100, 100)):
        refuses(client.post("/v1/search", content=large, headers=JSON), "allowed: 2000", 413, "too_large")
    assert client.post("/v1/search", content=b'{"query": "oak"}'.ljust(2_000), headers=JSON).status_code == 200
    assert len(engine.asked) == 1


def test_children_of_a_node(client):
    body = client.get("/v1/nodes").json()
    assert (body["total"], body["levels"], body["described"], body["version"]) == (2, 2, 1, 4)
    first, second = body["nodes"]
    shown = {"name": "1:1", "parent": "0:0", "leaf": None, "size": 6, "children": 2, "keywords": ["leaf", "moss"]}
    assert first == {**shown, "documents": ["d1"]}
    assert second == {**first, "name": "1:0", "size": 3, "keywords": ["tree"]}
    below = client.get("/v1/nodes?below=1:1&limit=1").json()
    assert ([node["name"] for node in below["nodes"]], below["total"]) == (["2:3"], 2)


def test_nodes_and_pages_that_are_none(client):
    for sent, named in {
        "nodes?leaf=9": "leaf",
        "nodes?leaf=a": "leaf.0",
        f"nodes?{'&'.join(['leaf=0'] * 1_001)}": "leaf",
        "nodes?below=2:9": "below",
        "nodes?below=1:" + "9" * 5_000: "below",
        "nodes?leaf=1&below=1:0": "query",
        "documents?limit=1.5": "limit",
        "documents?min_log=-1": "min_log",
        "documents?aftr=d1": "query",
        "documents/%FF": "id",
    }.items():
        said = refuses(client.get(f"/v1/{sent}"), "")
        assert said.startswith(f"{named}: ")
        assert len(said) < 300


def test_nodes_within_the_limit_of_bytes(engine):
    client = limited(engine, 150)
    assert client.get("/v1/nodes?leaf=1").status_code == 200
    refuses(client.get("/v1/nodes?leaf=1&leaf=2"), "allowed: ask for fewer nodes", code="answer_too_large")


def test_the_schema_is_whole(locked, client):
    schema = locked.get("/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    validate(schema)
    assert schema["security"] == [{"token": []}]
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    assert "security" not in client.get("/openapi.json").json()


def test_queries_stay_out_of_logs_unless_asked(engine, client, caplog):
    log = logging.getLogger("ray.serve")
    asked = {"/v1/search": {"query": "secret oak"}, "/v1/search:batch": {"queries": ["elm", "secret\nash"]}}
    asked["/v1/route"] = {"query": "secret fern"}
    log.addHandler(caplog.handler)  # a cluster that was started in this process before has changed its handlers
    try:
        with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "ray.serve"):
            for engine.error in (None, RuntimeError("a defect")):
                for path, body in asked.items():
                    client.post(path, json=body)
            assert "secret" not in caplog.text
            caplog.clear()
            engine.error = None
            for path, body in asked.items():
                TestClient(app_of(engine, log_queries=True)).post(path, json=body)
    finally:
        log.removeHandler(caplog.handler)
    said = dict.fromkeys(record.getMessage() for record in caplog.records if record.name == "ray.serve")
    assert list(said) == ["query: 'secret oak'", "queries: 'elm'", r"queries: 'secret\nash'", "query: 'secret fern'"]


def test_answers_show_what_is_included(client):
    whole = {"title": "a title", "text": "a text", "fields": {"year": 1999}}
    for parts in ([], ["title"], ["text", "fields"], None):
        shown = {name: value if parts is None or name in parts else None for name, value in whole.items()}
        alone = client.post("/v1/search", json={"query": "oak", "include": parts}).json()
        batch = client.post("/v1/search:batch", json={"queries": ["oak"], "include": parts}).json()["answers"][0]
        hit = {"id": "d1", "score": 0.5, "leaf": 3, **shown, "estimated": False}
        assert alone["results"] == batch["results"] == [hit]


def test_an_answer_has_a_limit_of_bytes(engine):
    engine.hit, client = Hit("d1", 0.5, 3, "a title", "é" * 30_000, {"year": 1999}), limited(engine, 100_000)
    assert client.post("/v1/search", json={"query": "oak"}).status_code == 200
    asked = {"queries": ["oak", "elm"]}
    said = "answer: got more than 100000 bytes, limits.max_answer_bytes; allowed: ask for fewer"
    refuses(client.post("/v1/search:batch", json=asked), said, code="answer_too_large")
    less = client.post("/v1/search:batch", json={**asked, "include": ["title", "fields"]})
    assert len(less.json()["answers"]) == 2


def test_leaves_count_as_bytes_of_an_answer(engine):
    """A filter may visit all leaves of an index, and `explain` says something of each."""
    routes, client = Routes(Encoded(np.zeros((1, 3))), np.arange(600)[None], model=None), limited(engine, 50_000)
    vars(routes).update(log_probs=np.zeros((1, 600)), log_densities=None)

    def given(leaves, explain):
        answer = Answer([HIT], list(range(leaves)), 4, 0.4, scored=7)
        engine.search = lambda *_: asyncio.sleep(0, Answers([answer], [[]], {}, routes, [40], SEEN))
        return client.post("/v1/search", json={"query": "oak", "explain": explain})

    assert given(5_000, explain=False).status_code == given(900, explain=False).status_code == 200
    for leaves, explain in ((7_000, False), (900, True)):
        assert error(given(leaves, explain))[1] == "answer_too_large"
    routes.leaves_QB[:, 300:] = -1
    explain = given(900, explain=True).json()["explain"]
    assert len(explain.pop("leaves")) == 300
    assert explain == {"scanned": 7, "widened": 600, "rows": 40}


def test_a_document_that_a_lost_group_may_hold_is_unknown(client, engine):
    engine.gone = ["shards-1"]
    assert client.get("/v1/documents/d1").status_code == 200
    for path in ("/v1/documents/d2", "/v1/documents"):
        refuses(client.get(path), "shards-1", 503, "shards_lost")
    engine.stored = [replace(STORED, passages=["one of several"])]
    assert error(client.get("/v1/documents/d1"))[:2] == (503, "shards_lost")


def test_a_page_ends_before_the_document_that_does_not_fit(engine):
    engine.stored = [replace(STORED, id=f"d{n}", text="x" * length) for n, length in enumerate([10, 3_800, 10, 10])]
    client, shown, after = limited(engine, 4_000), [], ""
    while after is not None:
        page = client.get("/v1/documents", params={"after": after}).json()
        shown.append([document["id"] for document in page["documents"]])
        after = page["next"]
    assert shown == [["d0"], ["d1"], ["d2", "d3"]]
    assert client.get("/v1/documents", params={"limit": 1}).json()["next"] == "d0"
    engine.stored = [replace(STORED, text="x" * 5_000)]
    refuses(client.get("/v1/documents/d1"), "d1: got a document of 51", code="answer_too_large")


def test_a_vector_of_another_model_is_refused_where_the_request_names_it(engine):
    writer = CannedWriter()
    client, vector = TestClient(app_of(engine, writer=writer)), [1, 0, 0]
    for method, path, body in (
        ("POST", "/v1/search", {"vector": vector}),
        ("POST", "/v1/search:batch", {"vectors": [vector]}),
        ("POST", "/v1/route", {"vector": vector}),
        ("PUT", "/v1/documents", {"documents": [{"id": "a", "text": "x", "vector": vector}]}),
    ):
        assert client.request(method, path, json=body | {"model": "0123456789ab"}).status_code == 200
        told = len(engine.asked), len(writer.told)
        other = client.request(method, path, json=body | {"model": "fedcba987654"})
        refuses(other, "model: got 'fedcba987654'; allowed: 0123456789ab", 409, "other_model")
        assert (len(engine.asked), len(writer.told)) == told


async def test_those_who_ask_for_readiness_together_share_a_search(monkeypatch):
    now, unavailable = [0.0], AsyncMock(side_effect=[["shards-1"], ["shards-2"]])
    monkeypatch.setattr(api.time, "monotonic", lambda: now[0])
    readiness = api.Readiness(unavailable)
    assert await asyncio.gather(*(readiness() for _ in range(50))) == [["shards-1"]] * 50
    for now[0], lost in ((0.9, "shards-1"), (1.0, "shards-2")):
        assert await readiness() == [lost]


@pytest.mark.parametrize("folder", ["/srv/runs/", "s3://bucket/runs/index/ba98/"])
def test_what_cannot_be_restored_is_said_without_folders(folder):
    said = "data/0.parquet: SHA-256 differs; allowed: a version"
    assert f'"message":"{said}"' in respond(ApiError(409, "not_restored", folder + said)).body.decode()
