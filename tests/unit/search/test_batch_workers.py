"""A worker of a batch without Ray, in every mode."""

from itertools import pairwise

import numpy as np
import pytest

from rayhier.search.batch import ray as batch_ray
from rayhier.search.batch.job import answered
from rayhier.search.batch.query_files import Chunk
from rayhier.search.batch.ray import Worker
from rayhier.search.snapshot import Snapshot
from rayhier.spec import JobSpec
from rayhier.storage import current

from ...conftest import leaf_map_of
from ..serve.conftest import TEXTS, L, published

__all__ = ["published"]  # fixture
CHUNK = Chunk([f"q{n}" for n in range(12)], [(np.arange(12), TEXTS[:12])])


@pytest.fixture
def asked(monkeypatch):
    """Numbers of the workers that are asked, which do the work at once."""
    numbers = []
    monkeypatch.setattr(batch_ray, "_read", lambda worker, work: numbers.append(worker._number) or worker.read(work))
    monkeypatch.setattr(batch_ray, "get", list)
    monkeypatch.setattr(batch_ray, "_one_thread", lambda: None)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    return numbers


def hybrid(work):
    now = current.read(work)
    spec = now.spec.model_dump(mode="json")
    return now.model_copy(update={"spec": JobSpec.model_validate({**spec, "search": {**spec["search"], "hybrid": {}}})})


@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
@pytest.mark.parametrize("cuts", [[0, L], [0, 4, L]], ids=["one", "two"])
def test_every_mode_is_answered_by_all_workers_together(published, asked, mode, cuts):
    now, version = hybrid(published), leaf_map_of(published).manifest.version
    leaves = [range(first, last) for first, last in pairwise(cuts)]
    workers = [Worker(str(published), now, version, leaves, number) for number in range(len(leaves))]
    arguments = {"k": 5, "mode": mode}
    rows = workers[0].search(workers, CHUNK, arguments).to_pylist()
    searcher = Snapshot.of_version(published, now)
    wanted = answered(searcher.rules, CHUNK, arguments, searcher.retrieve).to_pylist()
    assert [row["query_id"] for row in rows] == list(CHUNK.ids)
    assert set(asked) == set(range(len(leaves)))
    if mode == "dense" or len(leaves) == 1:
        assert rows == wanted
    assert all(len(row["ids"]) == len(set(row["ids"])) == 5 for row in rows)
