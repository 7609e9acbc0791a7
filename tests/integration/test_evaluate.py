"""Holders that keep objects of an evaluation, in this process and on Ray."""

from pathlib import Path

import pyarrow as pa
import pytest

from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.evaluate.stage import limit
from rayhier.executor import Executor
from rayhier.executor.here import Here
from rayhier.executor.ray import RayExecutor
from rayhier.spec import InputError
from rayhier.spec.cluster import Workers
from rayhier.storage.artifact import Artifact

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.parametrize("executor", [Here(), RayExecutor()], ids=["here", "ray"])
def test_holders_keep_several_objects_and_let_them_go(executor: Executor, tmp_path: Path) -> None:
    ids = [pa.array(["a", "b"]), pa.array(["c"])]
    vectors, count = pa.array([[1.0], [2.0]]), BaselineDocuments.counts
    with executor.holders(Workers(workers=2), limit) as workers:
        first = workers.start(BaselineDocuments, [(own, own, vectors) for own in ids])
        second = workers.start(BaselineDocuments, [(ids[1], ids[1], vectors)])
        alone = workers.alone(BaselineDocuments, ids[0], ids[0], vectors)
        assert (first.call(count), second.call(count), alone.one(count)) == ([(2, 2), (1, 1)], [(1, 1)], (2, 2))
        first.close()
        assert second.one(count) == (1, 1)
        with pytest.raises(KeyError):
            first.call(count)
        # What a user can mend reads as it would have in this process.
        with pytest.raises(InputError) as refused:
            workers.alone(Artifact.open, tmp_path / "none")
        assert str(refused.value) == f"{tmp_path / 'none'}: no artifact is published there"
