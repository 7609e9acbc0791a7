"""Documents added, replaced and deleted: a version more, or a clear refusal and none."""

import math

import numpy as np
import pytest

from rayhier.index import change
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.storage import files, leaf_map
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, batch
from .conftest import L, M, N, documents, unit


def test_a_leaf_that_is_full_takes_no_more(made):
    near = made.assign.router.cells.centroid_LM[0]
    vectors = near + 0.05 * unit(3, 100, M)
    after = change.add(made.root, made.assign, [(documents([f"n{n}" for n in range(100)]), Encoded(vectors))], 1.5)
    assert max(after.manifest.counts) == math.ceil(1.5 * sum(after.manifest.counts) / L)
    moved = after.manifest.moved
    assert moved > 0
    assert after.manifest.documents == N + 100
    again = change.add(made.root, made.assign, [(documents(["late"]), Encoded(near[None] / np.linalg.norm(near)))], 1.5)
    # To a leaf that is full, whose one row or two of it move as well.
    assert 0 < again.manifest.moved - moved <= 2
    verify(made.root)


def test_a_rollback_with_a_key_is_made_once(made):
    """Another Writer answered the same request, and changes after it, while the first one slept."""
    change.delete(made.root, ["d001"])
    assert change.restore(made.root, 1, key="k").manifest.restored == 1
    change.delete(made.root, ["d002"])
    before = LeafMap.open(made.root).manifest
    assert change.restore(made.root, 1, key="k").manifest == before
    assert change.restore(made.root, 1, key="other").manifest.documents == before.documents + 1
    assert [each.key for each in LeafMap.open(made.root).manifest.rollbacks] == ["k", "other"]


def test_a_damaged_file_is_named_by_whoever_reads_it(made):
    shard = LeafMap.open(made.root).manifest.shards[1]
    path = made.root / shard.file.name
    whole = path.read_bytes()
    page = bytes(one ^ 255 if 100 <= number < 140 else one for number, one in enumerate(whole))
    for damaged in (whole[: len(whole) // 2], page, None):
        path.unlink() if damaged is None else files.replace(path, damaged)
        for work in (
            lambda: change.add(made.root, made.assign, batch(["new"]), FACTOR),
            lambda: change.delete(made.root, ["d001"]),
        ):
            with pytest.raises(InputError, match=f"{shard.file.name}: cannot be read: .*rebuild"):
                work()
    assert leaf_map.versions(made.root) == [1]
