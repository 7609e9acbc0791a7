"""What the serving benchmark calls right: answers as offline, and documented refusals."""

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
        ([("a", 0.9), ("c", 0.5), ("b", 0.5), ("d", 0.3)], 0.0, True),
        ([("a", 0.9), ("b", 0.5), ("c", 0.5), ("e", 0.3)], 0.0, True),  # tied with the last
        ([("a", 0.9), ("b", 0.5), ("c", 0.5), ("f", 0.3)], TEXT, False),
        ([("b", 0.9), ("a", 0.5), ("c", 0.5), ("d", 0.3)], TEXT, False),
        ([("a", 0.9), ("b", 0.5), ("b", 0.5), ("d", 0.3)], TEXT, False),
        (OFFLINE[:3], TEXT, False),
        (OFFLINE[:5], TEXT, False),
        ([("a", 0.9 + 9e-6), *OFFLINE[1:4]], TEXT, True),
        ([("a", 0.9 + 2e-5), *OFFLINE[1:4]], TEXT, False),
        ([("a", math.nan), *OFFLINE[1:4]], TEXT, False),
    ],
)
def test_answers_as_offline(served, within, expected):
    assert same(served, OFFLINE, 4, within) is expected


def outcome(status, body, headers=()):
    async def app(scope, receive, send):
        await receive()
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
        await send({"type": "http.response.body", "body": body})

    with listening(app) as port:
        (one,) = load.at_a_time(port, "/", [b"{}"], 1).outcomes
    return one


def test_an_answer_is_whole_or_says_what_it_lacks_and_a_refusal_is_documented():
    assert outcome(200, b'{"partial": false, "lost": []}').whole
    assert not outcome(200, b"{").whole
    assert outcome(200, b'{"partial": true, "lost": ["shards-0"]}').lost == ("shards-0",)
    said, retry = b'{"error": {"code": "overloaded", "message": "retry"}}', [(b"retry-after", b"1")]
    assert outcome(503, said, retry).unavailable("overloaded")
    assert not outcome(503, said, retry).unavailable("shards_lost")
    assert not outcome(503, said).unavailable("overloaded")
    assert not outcome(500, said, retry).unavailable("overloaded")
