"""A shard group as the engine uses it: which scans are read together, and what each caller gets of the answer."""

import asyncio

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.ranking import Ranking
from rayhier.search.retrieve import Scan
from rayhier.serve.backend.engine import Group
from rayhier.serve.backend.version import ShardRange
from rayhier.spec.filter import Bound

from .stand_ins import SEEN
from .virtual_time import run

WHERE = Bound("year", "gte", 2019)


class Shards:
    """Shards whose answer to a query is the document that its vector names; they answer once they are let go."""

    def __init__(self):
        self.works, self.let_go = [], asyncio.Event()

    async def read(self, work, seen):
        self.works.append(work)
        await self.let_go.wait()
        if not isinstance(work, Scan):
            return work
        numbers = work.query_QM[:, 0].astype(np.int64)
        documents = pa.table({"id": [f"d{n}" for n in numbers]})
        rows_Q1 = np.arange(len(numbers))[:, None]
        return Ranking(rows_Q1.astype(np.float32), rows_Q1, documents, numbers, numbers, numbers)


def scan_of(*numbers, k=5, leaves=2, where=None, needs="texts"):
    """A scan for queries whose vectors begin with these numbers, each in as many leaves."""
    query_QM = np.array([[n, 0] for n in numbers], np.float32)
    return Scan(query_QM, np.tile(np.arange(leaves), (len(numbers), 1)), k, where, needs)


def read_at_once(*works, **options):
    """Have a group, which one scan keeps busy, read some works; the shards' works after that one, and all answers."""

    async def main():
        shards = Shards()
        group = Group(ShardRange("shards-0", range(3)), shards, at_once=1, **options)
        busy = asyncio.create_task(group.read(scan_of(99), SEEN))
        while not shards.works:
            await asyncio.sleep(0)
        asked = [asyncio.create_task(group.read(work, SEEN)) for work in works]
        for _ in range(5):
            await asyncio.sleep(0)
        shards.let_go.set()
        await busy
        answers = await asyncio.gather(*asked)
        return shards.works[1:], answers

    return run(main())


def numbers_of(work):
    return work.query_QM[:, 0].astype(int).tolist()


def test_scans_of_as_many_results_and_leaves_are_read_together():
    works, answers = read_at_once(scan_of(1, 2), scan_of(3), scan_of(4, 5))
    (together,) = works
    assert numbers_of(together) == [1, 2, 3, 4, 5]
    assert together.leaves_QB.tolist() == [[0, 1]] * 5
    assert (together.k, together.where, together.needs) == (5, None, "texts")
    for ranking, numbers in zip(answers, ([1, 2], [3], [4, 5]), strict=True):
        assert [ranking.ids[row] for row in ranking.row_QK[:, 0]] == [f"d{n}" for n in numbers]
        assert ranking.visited_Q.tolist() == numbers
        assert ranking.documents.num_rows == len(numbers), "no caller gets documents of another"


@pytest.mark.parametrize(
    "other",
    [{"k": 6}, {"leaves": 3}, {"needs": "vectors"}, {"where": WHERE}],
    ids=["k", "leaves", "vectors", "filter"],
)
def test_scans_that_differ_are_read_apart(other):
    works, answers = read_at_once(scan_of(1), scan_of(2, **other), scan_of(3))
    assert [numbers_of(work) for work in works] == [[1, 3], [2]]
    assert works[1].k == other.get("k", 5)
    assert (works[1].where, works[1].needs) == (other.get("where"), other.get("needs", "texts"))
    assert [ranking.ids.tolist() for ranking in answers] == [["d1"], ["d2"], ["d3"]]
