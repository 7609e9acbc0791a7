"""A replica that scores pairs: in slices, in their order, told apart from one that hangs."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from rayhier.serve.backend import cross_encoder as module
from rayhier.serve.backend.cross_encoder import CrossEncoderReplica


class Scorer:
    """Scores a pair by its document's length; waits for `go` where it has one."""

    def __init__(self):
        self.sizes, self.go, self.pairs, self.began = [], None, [], threading.Event()

    def __call__(self, queries, items):
        self.began.set()
        if self.go is not None:
            self.go.wait()
        self.sizes.append(len(queries))
        self.pairs += zip(queries, items, strict=True)
        return np.array([len(item) for item in items], np.float32)


@pytest.fixture
def scorer(monkeypatch):
    scorer = Scorer()
    monkeypatch.setattr(module.current, "artifact", lambda *_: SimpleNamespace(verify=lambda: None))
    monkeypatch.setattr(module, "open_scorer", lambda *_: scorer)
    monkeypatch.setattr(module, "PAIRS", 10)
    return scorer


async def turns():
    """Let every task that can go on do so until it waits for something else."""
    for _ in range(10):
        await asyncio.sleep(0)


def replica():
    version = SimpleNamespace(workdir="/nowhere", now=SimpleNamespace(spec=SimpleNamespace(cross_encoder=object())))
    return CrossEncoderReplica(version, threads=2)


async def test_pairs_are_scored_in_slices_and_in_order(scorer):
    own = replica()
    items = ["x" * n for n in range(25)]
    one, other = await asyncio.gather(own.score(["a"] * 25, items), own.score(["b"] * 3, items[:3]))
    assert one.tolist() == list(range(25))
    assert other.tolist() == [0, 1, 2]
    assert (await own.score([], [])).shape == (0,)
    assert max(scorer.sizes) <= 10
    assert sum(scorer.sizes) == 28
    assert len(scorer.sizes) == 3  # the rest of the one goes with the other


async def test_a_ping_waits_for_the_slice_at_work_alone(scorer):
    own, scorer.go = replica(), threading.Event()
    asked = asyncio.create_task(own.score(["a"] * 100, ["x"] * 100))
    await asyncio.to_thread(scorer.began.wait, 60)
    ping = asyncio.create_task(own.ping())
    await turns()
    assert not ping.done()
    await own.check_health()
    own._since -= module.HUNG_SECONDS + 1  # it has hung for long
    with pytest.raises(RuntimeError, match="not scored within"):
        await own.check_health()
    scorer.go.set()
    await ping
    assert not asked.done()
    assert len(await asked) == 100
    await own.check_health()


async def test_a_request_that_leaves_is_not_scored(scorer):
    own, scorer.go = replica(), threading.Event()
    first = asyncio.create_task(own.score(["a"] * 10, ["x"] * 10))
    await asyncio.to_thread(scorer.began.wait, 60)
    second = asyncio.create_task(own.score(["b"] * 30, ["x"] * 30))
    await turns()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    scorer.go.set()
    await first
    assert len(await own.score(["c"], ["x"])) == 1
    assert {query for query, _ in scorer.pairs} == {"a", "c"}
