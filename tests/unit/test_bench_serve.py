"""What the serving benchmark calls right: answers as offline, and documented refusals."""

import json
import math

import pytest

from benchmarks.serve import load
from benchmarks.serve.goals import same

from .serve.sockets import listening

OFFLINE = [("a", 0.9), ("b", 0.5), ("c", 0.5), ("d", 0.3), ("e", 0.3), ("f", 0.1)]
TEXT = 1e-5


@pytest.mark.parametrize(
    ("served", "within", "expected"),
    [
        (OFFLINE[:4], 0.0, True),
        ([("a", 0.9), ("c", 0.5), ("b", 0.5), ("d", 0.3)], 0.0, True),
        ([("a", 0.9), ("b", 0.5), ("c", 0.5), ("e", 0.3)], 0.0, True),  # tied with the last
        ([("a", 0.9), ("b", 0.5), ("c", 0.5), ("f", 0.3)], TEXT, False),
        ([("b", 0.9), ("a", 0.5), ("c", 0.5), ("d", 0.3)], TEXT, False),
        ([("a", 0.9), ("b", 0.5), ("b", 0.5), ("d", 0.3)], TEXT, False),
        (OFFLINE[:3], TEXT, False),
        ([("a", 0.9 + 9e-6), *OFFLINE[1:4]], TEXT, True),
        ([("a", 0.9 + 2e-5), *OFFLINE[1:4]], TEXT, False),
        ([("a", math.nextafter(0.9, 1)), *OFFLINE[1:4]], 0.0, False),
        ([("a", math.nan), *OFFLINE[1:4]], TEXT, False),
    ],
)
def test_answers_as_offline(served, within, expected):
    assert same(served, OFFLINE, 4, within) is expected


def test_ties_within_the_tolerance_may_swap():
    offline = [("a", 0.5), ("b", 0.5 - 9e-6), ("c", 0.4)]
    swapped = [("b", 0.5), ("a", 0.5 - 9e-6)]
    assert same(swapped, offline, 2, TEXT)
    assert not same(swapped, offline, 2, 1e-6)


def app(status, body, headers=()):
    async def answer(scope, receive, send):
        await receive()
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
        await send({"type": "http.response.body", "body": body})

    return answer


def outcome(*answer):
    with listening(app(*answer)) as port:
        (one,) = load.at_a_time(port, "/", [b"{}"], 1).outcomes
    return one


RETRY = [(b"retry-after", b"1")]


def test_a_refusal_is_documented_by_its_body_too():
    said = json.dumps({"error": {"code": "overloaded", "message": "retry"}}).encode()
    assert outcome(503, said, RETRY).unavailable("overloaded")
    assert not outcome(503, said, RETRY).unavailable("shards_lost")
    assert not outcome(503, said).unavailable("overloaded")
    assert not outcome(500, said, RETRY).unavailable("overloaded")
    assert not outcome(503, b"Service Unavailable", RETRY).unavailable("overloaded")


def test_an_answer_is_whole_or_says_what_it_lacks():
    lacking = outcome(200, b'{"partial": true, "lost": ["shards-0"]}')
    assert (lacking.whole, lacking.lost) == (False, ("shards-0",))
    assert not outcome(200, b"{").whole


def test_a_load_sends_as_many_as_asked():
    with listening(app(200, b'{"partial": false}')) as port:
        found = load.a_second(port, "/", [b"{}"], rate=100, seconds=0.2, checks=[lambda _: False])
    assert (found.asked, found.unsent, len(found.outcomes)) == (20, 0, 20)
