"""A shard group as the engine uses it: which scans are read together, and what each caller gets of the answer."""

import asyncio

import numpy as np
import pyarrow as pa

from rayhier.dataset.ranking import Ranking
from rayhier.search.retrieve import Scan
from rayhier.serve.backend.engine import Group
from rayhier.serve.backend.version import ShardRange
from rayhier.spec.filter import Bound

from .stand_ins import SEEN
from .virtual_time import run

RUN = run


class Shards:
    """Shards whose answer to a query is the document that its vector names."""

    def __init__(self):
        self.works = []

    async def read(self, work, seen):
        self.works.append(work)
        numbers = np.array(numbers_of(work))
        rows_Q1 = np.arange(len(numbers))[:, None]
        documents = pa.table({"id": [f"d{n}" for n in numbers]})
        return Ranking(rows_Q1.astype(np.float32), rows_Q1, documents, numbers, numbers, numbers)


def scan_of(*numbers, k=5, leaves=2, where=None, needs="texts"):
    """A scan for queries whose vectors begin with these numbers, each in as many leaves."""
    query_QM = np.array([[n, 0] for n in numbers], np.float32)
    return Scan(query_QM, np.tile(np.arange(leaves), (len(numbers), 1)), k, where, needs)


def numbers_of(work):
    return work.query_QM[:, 0].astype(int).tolist()


async def test_scans_of_as_many_results_and_leaves_are_read_together():
    shards, others = Shards(), ({"k": 6}, {"leaves": 3}, {"needs": "vectors"}, {"where": Bound("year", "gte", 2019)})
    group = Group(ShardRange("shards-0", range(3)), shards, at_once=1)
    scans = [scan_of(1, 2), *(scan_of(6 + n, **other) for n, other in enumerate(others)), scan_of(3)]
    answers = await asyncio.gather(*(group.read(work, SEEN) for work in scans))
    assert [numbers_of(work) for work in shards.works] == [[1, 2, 3], [6], [7], [8], [9]]
    for work, own in zip(shards.works, scans, strict=False):
        assert (work.k, work.where, work.needs) == (own.k, own.where, own.needs)
        assert work.leaves_QB.shape[1] == own.leaves_QB.shape[1]
    for ranking, own in zip(answers, scans, strict=True):
        numbers = numbers_of(own)
        assert [ranking.ids[row] for row in ranking.row_QK[:, 0]] == [f"d{n}" for n in numbers]
        assert ranking.visited_Q.tolist() == numbers
        assert ranking.documents.num_rows == len(numbers), "no caller gets documents of another"
