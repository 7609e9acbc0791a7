"""Recall as served: what exact searches of a few queries tell of all of them, within a share of a CPU."""

import asyncio
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from rayhier.index.stats import ServedRecall, recall_advice
from rayhier.search.retrieve import Exact
from rayhier.search.snapshot import Snapshot
from rayhier.serve.args import Auditing
from rayhier.serve.backend import audit as module
from rayhier.serve.backend.audit import Audit

from .conftest import TEXTS, N
from .stand_ins import ask, engine_of, near_groups

ALL = Auditing(share=1, cpu=1)


@pytest.fixture
def clock(monkeypatch):
    """Time that passes while something sleeps."""
    clock = SimpleNamespace(slept=[], time=lambda: sum(clock.slept))

    async def sleep(seconds):
        clock.slept.append(seconds)

    monkeypatch.setattr(module, "time", clock)
    parts = {name: getattr(asyncio, name) for name in ("create_task", "Task")}
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(**parts, sleep=sleep))
    return clock


@pytest.fixture
def searcher(published):
    return Snapshot.open(published)


@pytest.fixture(params=[1, 3])
def engine(request, searcher, published):
    return engine_of(searcher, near_groups(published, request.param))


def audited(engine, texts, k=7, beam=1, settings=ALL, **more):
    """Search for each text, with its audit; returns the audit."""
    audit = Audit(engine, settings, **more)

    async def searches():
        for text in texts:
            await ask(engine, [text], k, beam)
            await audit._task

    asyncio.run(searches())
    return audit


@pytest.mark.parametrize("parts", [1, 4])
def test_recall_is_that_of_an_offline_search(engine, searcher, clock, monkeypatch, parts):
    """As a share of the exact best seven that a beam of one leaf finds."""
    texts = TEXTS[::4]
    monkeypatch.setattr(module, "PART", math.ceil(2 * N * 32 / len(engine.view.groups) / parts))
    recall = audited(engine, texts).recall
    exact, found = (searcher.search(texts, 7, leaves) for leaves in (9, 1))
    counts = [
        sum(hit.score >= best.hits[-1].score - 1e-5 for hit in own.hits) for best, own in zip(exact, found, strict=True)
    ]
    assert recall.queries == len(texts)
    assert recall.mean == pytest.approx(np.mean(counts) / 7)
    assert 0.3 < recall.low < recall.mean < recall.high < 0.99
    assert audited(engine, TEXTS[:9], k=100, beam=9).recall.mean == 1


def test_it_rests_in_proportion_to_its_work(engine, clock, monkeypatch):
    """Each part of an exact search takes 10 ms of CPU, of which an audit may use 3%."""
    monkeypatch.setattr(module, "PART", 2 * N * 32 / len(engine.view.groups) / 4)

    async def taking(read, work, seen):
        outcome = await read(work, seen)
        return (outcome[0], 0.01) if isinstance(work, Exact) else outcome

    for group in engine.view.groups:
        group.read = partial(taking, group.read)
    audited(engine, TEXTS[:1], settings=Auditing(share=1, cpu=0.03))
    each = 0.01 + module.DISPATCH
    assert clock.slept == pytest.approx([module.AFTER, *[each / 0.03 - each] * 4 * len(engine.view.groups)])


async def test_a_group_that_is_lost_ends_an_audit(engine, clock):
    audit = Audit(engine, ALL)
    await ask(engine, TEXTS[:1], 3, 2)
    engine.view.groups[-1].gone = True
    await audit._task
    assert (audit.recall, audit.skipped) == (None, 1)


def test_intervals_hold_the_mean_they_are_drawn_from_and_advice_follows():
    """In at least 95 of 100 draws, of answers with ten results each of which is found with that probability."""
    rng = np.random.default_rng(0)
    for mean, n in ((0.95, 50), (1.0, 30)):
        drawn = [ServedRecall.of((rng.binomial(10, mean, n) / 10).tolist(), 0) for _ in range(300)]
        assert sum(recall.low <= mean <= recall.high for recall in drawn) >= 0.95 * 300
    short = ServedRecall.of([0.8] * 500, 0)
    (line,) = recall_advice(short, 0.95)
    assert line.startswith("retrain: searches find 80.0% of the exact best documents (76.3% to 83.3%, 500 queries)")
    assert recall_advice(ServedRecall.of([0.9] * 10, 0), 0.95) == recall_advice(short, None) == []
