"""Bodies: what is received, for how long, and what is read as JSON."""

import asyncio

import pytest
from fastapi.testclient import TestClient

from rayhier.serve.args import RequestLimits
from rayhier.serve.errors import ApiError
from rayhier.serve.http.body import Receiver

from .sockets import SCOPE, chunks
from .stand_ins import Canned, app_of, error
from .virtual_time import run

RUN = run

JSON = {"content-type": "application/json"}


@pytest.fixture
def client():
    return TestClient(app_of(Canned(), RequestLimits()), raise_server_exceptions=False)


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


async def test_two_hundred_thousand_chunks_leave_others_their_turn():
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


async def test_a_body_that_stalls():
    receiver = Receiver(RequestLimits(body_seconds=0.01))
    with pytest.raises(ApiError, match=r"body: did not arrive within 0\.01 s, limits\.body_seconds") as caught:
        await receiver(SCOPE, chunks(b"x")[0])
    assert (caught.value.status, caught.value.code) == (408, "timeout")
    assert receiver.arriving.held == 0


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
