"""Bodies: what is received, for how long, and what is read as JSON."""

import asyncio
import json
import threading

import pytest
from fastapi.testclient import TestClient

from rayhier.serve.args import RequestLimits
from rayhier.serve.errors import ApiError
from rayhier.serve.http import body as module
from rayhier.serve.http.body import GoneError, Receiver, most_values

from .sockets import HEAD, SCOPE, chunks, connected, listening, status
from .stand_ins import INDEX, Canned, app_of, error
from .virtual_time import run

JSON = {"content-type": "application/json"}


@pytest.fixture
def client():
    return TestClient(app_of(Canned(), RequestLimits()), raise_server_exceptions=False)


@pytest.mark.parametrize("value", [b'""', b"1", b"[]"])
@pytest.mark.parametrize("key", [b"queries", b"vector", b"vectors"])
def test_a_million_values_are_refused_at_once(client, value, key):
    body = b'{"%s": [%s]}' % (key, b",".join([value] * 1_000_000))
    response = client.post("/v1/search:batch", content=body, headers=JSON)
    assert error(response)[:2] == (413, "too_large")
    assert f"allowed: {most_values(RequestLimits().max_batch, INDEX.dimension)[0]}" in response.text


def test_a_full_batch_fits(client):
    vectors = [[0.5, 0.5, 0.5]] * RequestLimits().max_batch
    assert client.post("/v1/search:batch", json={"vectors": vectors}).status_code == 200


def test_of_many_wrong_values_the_first_is_said(client):
    for path, asked in {
        "/v1/search": {"vector": ["a", "b"]},
        "/v1/search:batch": {"queries": [1, 2]},
        "/v1/route": {"vector": ["a", "b"]},
    }.items():
        message = error(client.post(path, json=asked))[2]
        assert ".0: " in message
        assert ".1: " not in message
    assert "vectors.0: " in error(client.post("/v1/search:batch", json={"vectors": [1, 2]}))[2]


@pytest.mark.parametrize(("letters", "in_thread"), [(100, False), (40_000, True)])
def test_large_bodies_are_parsed_in_a_thread(client, monkeypatch, letters, in_thread):
    parse, threads = module.parse, []

    def noting(body, *most):
        threads.append(threading.current_thread().name)
        return parse(body, *most)

    monkeypatch.setattr(module, "parse", noting)
    response = client.post("/v1/search", json={"query": "x" * letters})
    assert response.status_code == (422 if in_thread else 200)
    (thread,) = threads
    assert thread.startswith("parse") is in_thread


TYPES = {
    "application/json": 200,
    "application/json; charset=utf-8": 200,
    'Application/JSON;charset="UTF-8"': 200,
    "application/problem+json": 415,
    "application/vnd.api+json": 415,
    "application/json; charset=latin-1": 415,
    "application/jsonlines": 415,
    "text/plain": 415,
    "": 415,
}


@pytest.mark.parametrize(("given", "expected"), TYPES.items(), ids=TYPES)
def test_only_json_in_utf8_is_read(client, given, expected):
    response = client.post("/v1/search", content=b'{"query": "oak"}', headers={"content-type": given})
    assert response.status_code == expected
    if expected == 415:
        assert error(response)[1] == "not_json"
        assert "; allowed: application/json, in UTF-8" in error(response)[2]


def test_a_key_stands_once(client):
    response = client.post("/v1/search", content=b'{"query": "oak", "k": 1, "k": 2}', headers=JSON)
    assert error(response) == (422, "invalid", "body: got key 'k' more than once; allowed: each key once")


def test_two_hundred_thousand_chunks_leave_others_their_turn():
    async def main():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def receive():
            nonlocal left
            left -= 1
            return {"type": "http.request", "body": b"x", "more_body": left > 0}

        left, running = 200_000, asyncio.create_task(other())
        body = await Receiver(RequestLimits())(SCOPE, receive)
        running.cancel()
        assert body == b"x" * 200_000
        assert turns >= 100

    asyncio.run(main())


def test_a_body_in_tiny_chunks_over_a_socket(client):
    body = json.dumps({"query": "oak"}).ljust(200_000).encode()
    with listening(client.app) as port:
        sent = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        with connected(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + sent) as one:
            assert status(one) == 200


def test_a_body_that_stalls():
    async def main():
        receiver = Receiver(RequestLimits(body_seconds=0.01))
        with pytest.raises(ApiError, match=r"body: did not arrive within 0\.01 s, limits\.body_seconds") as caught:
            await receiver(SCOPE, chunks(b"x")[0])
        assert (caught.value.status, caught.value.code) == (408, "timeout")
        assert receiver.arriving.held == 0

    run(main())


def test_bytes_that_arrive_at_once_are_limited():
    async def main():
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

    asyncio.run(main())


def test_a_client_that_leaves():
    async def main():
        receive, messages = chunks(b"{")
        messages.append({"type": "http.disconnect"})
        with pytest.raises(GoneError):
            await Receiver(RequestLimits())(SCOPE, receive)

    asyncio.run(main())
