"""What the serving benchmark calls right: answers as offline, documented refusals, a health that was seen."""

import json
import math

import pytest

from benchmarks.goals import Goal
from benchmarks.serve import load
from benchmarks.serve.goals import same
from benchmarks.serve.hostile import Reply
from benchmarks.serve.load import Load, Outcome
from benchmarks.serve.watch import Looks, watched

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
        ([("a", 0.9), ("b", 0.5), ("c", 0.5), ("x", 0.3)], TEXT, False),
        ([("b", 0.9), ("a", 0.5), ("c", 0.5), ("d", 0.3)], TEXT, False),
        ([("a", 0.9), ("b", 0.5), ("b", 0.5), ("d", 0.3)], TEXT, False),
        (OFFLINE[:3], TEXT, False),
        (OFFLINE[:5], TEXT, False),
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


def test_what_did_not_happen_is_not_met():
    assert not Goal("", None, 1, "least").met
    assert not Goal("", math.nan, 1, "most").met
    assert not Goal("", math.inf, 1, "most").met
    assert Goal("", 1.0, 1, "least").met
    assert Goal("", 2.0, 1, "most").row()[3] == "MISSED"


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


@pytest.mark.parametrize(
    ("body", "whole", "lost"),
    [
        (b'{"partial": false, "lost": []}', True, ()),
        (b'{"partial": true, "lost": ["shards-0"]}', False, ("shards-0",)),
        (b"{", False, ()),
    ],
)
def test_an_answer_is_whole_or_says_what_it_lacks(body, whole, lost):
    one = outcome(200, body)
    assert (one.whole, one.lost) == (whole, lost)


def test_the_rate_is_of_what_was_sent():
    sent = Load([Outcome(at / 10, 200, 0.1) for at in range(11)], seconds=1.5, asked=20)
    assert sent.sent_rate == 10
    assert sent.unsent == 9


def test_a_load_sends_as_many_as_asked():
    with listening(app(200, b'{"partial": false}')) as port:
        found = load.a_second(port, "/", [b"{}"], rate=100, seconds=0.2, checks=[lambda _: False])
    assert (found.asked, found.unsent) == (20, 0)
    assert [one.whole for one in found.outcomes] == [False] * 20


@pytest.mark.parametrize(
    ("reply", "refused"),
    [
        (Reply(413, 0.1, "too_large"), True),
        (Reply(413, 0.1, None), False),
        (Reply(418, 0.1, "teapot"), False),
        (Reply(200, 0.1, None), False),
        (Reply(500, 0.1, "internal"), False),
        (Reply(503, 0.1, "overloaded"), False),
    ],
)
def test_hostile_bodies_are_to_be_refused(reply, refused):
    assert reply.refused is refused


def test_a_health_that_fails_is_infinitely_slow():
    with watched("http://127.0.0.1:1/healthz", 0.001) as looks:
        pass
    assert looks.slowest == math.inf
    with listening(app(200, b"")) as port, watched(f"http://127.0.0.1:{port}/healthz", 0.001) as looks:
        pass
    assert 0 < looks.slowest < math.inf
    with listening(app(503, b"")) as port, watched(f"http://127.0.0.1:{port}/healthz", 0.001) as looks:
        pass
    assert looks.slowest == math.inf


def test_a_watch_that_stops_has_not_seen_health():
    assert Looks(0.1, [], elapsed=1.0).slowest == math.inf
    assert Looks(0.1, [0.1] * 2, elapsed=1.0).slowest == math.inf
    assert Looks(0.1, [0.1] * 3, elapsed=1.0).slowest == 0.1
    assert Looks(0.1, [0.1] * 5, elapsed=1.0).slowest == 0.1
