"""Bodies: what is received, for how long, how much of it is counted before it is parsed, and one line about keys."""

import asyncio
import itertools
import json

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from rayhier.serve.args import RequestLimits, WriteLimits
from rayhier.serve.errors import ApiError
from rayhier.serve.http import error_handlers
from rayhier.serve.http import receive as reader
from rayhier.serve.http.receive import DEEPEST, Receiver, parse

from .sockets import SCOPE, chunks
from .stand_ins import Canned, CannedWriter, app_of, refuses
from .virtual_time import run

RUN = run

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client():
    return TestClient(app_of(Canned(), RequestLimits()), raise_server_exceptions=False)


TYPES = {
    'Application/JSON;charset="UTF-8"': 200,
    "application/problem+json": 415,
    "application/json; charset=latin-1": 415,
    "": 415,
}


def test_only_json_in_utf8_that_is_not_compressed_is_read(client):
    for kind, expected in TYPES.items():
        response = client.post("/v1/search", content=b'{"query": "oak"}', headers={"content-type": kind})
        assert response.status_code == expected
        if expected == 415:
            refuses(response, "; allowed: application/json, in UTF-8", 415, "not_json")
    for codings, expected in ((["identity"], 200), (["gzip"], 415), (["identity", "gzip"], 415)):
        headers = [*JSON.items(), *(("content-encoding", coding) for coding in codings)]
        assert client.post("/v1/search", content=b'{"query": "oak"}', headers=headers).status_code == expected


async def test_two_hundred_thousand_chunks_leave_others_their_turn():
    left, turns = iter(range(199_999, -1, -1)), itertools.count()

    async def other():
        while next(turns) < 1_000_000:
            await asyncio.sleep(0)

    async def receive():
        return {"type": "http.request", "body": b"x", "more_body": next(left) > 0}

    running = asyncio.create_task(other())
    assert await Receiver(RequestLimits())(SCOPE, receive) == b"x" * 200_000
    running.cancel()
    assert next(turns) >= 100


async def test_a_body_that_stalls():
    receiver = Receiver(RequestLimits(body_seconds=0.01))
    with pytest.raises(ApiError, match=r"body: did not arrive within 0\.01 s, limits\.body_seconds") as caught:
        await receiver(SCOPE, chunks(b"x")[0])
    assert (caught.value.status, receiver.arriving.held) == (408, 0)


async def test_bytes_that_arrive_at_once_are_limited():
    receiver = Receiver(RequestLimits(max_arriving_bytes=10))
    slow, left = chunks(b"x" * 8)
    waiting = asyncio.create_task(receiver(SCOPE, slow))
    while left:
        await asyncio.sleep(0)
    with pytest.raises(ApiError, match=r"bytes of arriving bodies: 8 are held; allowed: 10") as caught:
        await receiver(SCOPE, chunks(b"x" * 3)[0])
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    whole = {"type": "http.request", "body": b"x" * 9, "more_body": False}
    assert await receiver(SCOPE, lambda: asyncio.sleep(0, whole)) == b"x" * 9


TEXTS = st.text(alphabet=',:[]{}"\\ab\né', max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def weight(value):
    """Values in a value, itself included; an empty list or object counts twice."""
    if not isinstance(value, (list, dict)):
        return 1
    inner = value.values() if isinstance(value, dict) else value
    return 1 + (sum(map(weight, inner)) if value else 1)


def depth(value):
    if not isinstance(value, (list, dict)):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


@given(VALUES, st.booleans())
def test_values_are_counted_exactly_whatever_texts_hold(value, ascii_only):
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse(body, weight(value)) == value
    if weight(value) > 1:
        with pytest.raises(ApiError, match=f"body: got about {weight(value)} values; allowed: {weight(value) - 1}"):
            parse(body, weight(value) - 1)


@given(VALUES)
def test_depth_is_counted_exactly(value):
    for _ in range(DEEPEST - depth(value)):
        value = [value]
    assert parse(json.dumps(value).encode(), 10_000) == value
    with pytest.raises(ApiError, match=f"body: JSON nested {DEEPEST + 1} deep; allowed: {DEEPEST}"):
        parse(json.dumps([value]).encode(), 10_000)


NOT_STRICT = [
    (b'[{"a": {"b": 1, "b": 2}}]', 422, "body: got key 'b' more than once"),
    (rb'{"\ud800": 1, "\ud800": 1}', 422, r"got key '\\ud800'"),
    ('{"a": "é"}'.encode("latin-1"), 400, "body: byte 7 is not UTF-8"),
    (b'{"k": 1' + b"0" * 5_000 + b"}", 422, "more than 4300 digits"),
    (b'{"a": ', 422, "body: not JSON: Expecting value at character 6"),
    (b"{} {}", 422, "body: not JSON: Extra data at character 3"),
]


def test_what_is_no_strict_json():
    for body, status, said in NOT_STRICT:
        with pytest.raises(ApiError, match=said) as caught:
            parse(body, 100)
        assert caught.value.status == status


@pytest.mark.parametrize("value", ['""', "[]", "[1]", r'"\""'])
def test_a_million_values_are_never_parsed(monkeypatch, value):
    for module, name in ((reader.json, "loads"), (reader, "from_json")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("parsed"))
    for around in ("[%s]", '{"vector": [%s'):
        body = (around % ",".join([value] * (3_900_000 // (len(value) + 1)))).encode()
        with pytest.raises(ApiError, match=r"body: got about \d{6,} values; allowed: 50000") as caught:
            parse(body, 50_000)
        assert caught.value.status == 413


def test_keys_are_counted_too():
    body = json.dumps({f"k{number}": "a:b" for number in range(100)}).encode()
    assert len(parse(body, 1_000, 100)) == 100
    with pytest.raises(ApiError, match="body: got about 100 keys; allowed: 99") as caught:
        parse(body, 1_000, 99)
    assert caught.value.status == 413


@pytest.fixture(scope="module")
def writing():
    """A client that may write."""
    return TestClient(app_of(Canned(), RequestLimits(), writer=CannedWriter(), writes=WriteLimits()))


MANY = {f"k{number}": 0 for number in range(15_000)}
BODIES = [
    ("POST", "/v1/search", {"query": "oak", **MANY}),
    ("POST", "/v1/search:batch", {"queries": ["oak"], **MANY}),
    ("POST", "/v1/embeddings", {"input": "oak", **MANY}),
    ("POST", "/v2/rerank", {"query": "oak", "documents": [{"text": "elm", **MANY}]}),
    ("PUT", "/v1/documents", {"documents": [{"id": "a", "text": "oak", **MANY}]}),
    ("DELETE", "/v1/documents", {"ids": ["a"], **MANY}),
]


def test_of_many_unknown_keys_one_is_an_error(writing, monkeypatch):
    invalid, found = error_handlers.RequestValidationError, []
    plain = invalid.errors
    monkeypatch.setattr(invalid, "errors", lambda self: found.append(plain(self)) or found[-1])
    for method, path, body in BODIES:
        refuses(writing.request(method, path, json=body), "got key 'k0'; allowed: ")
    assert max(map(len, found)) <= 2


def test_a_body_that_does_not_write_has_fewer_values(client, writing):
    body = {"query": "oak", "documents": [1] * 21_000}
    answers = [one.request("PUT", "/v1/documents", json=body).status_code for one in (client, writing)]
    assert [*answers, writing.post("/v1/search", json=body).status_code] == [413, 422, 413]


def test_an_id_to_delete_is_unicode(writing):
    answer = writing.request("DELETE", "/v1/documents", content=r'{"ids": ["a", "b\udfff"]}', headers=JSON)
    refuses(answer, "got an unpaired surrogate at character")
