"""Drift is a number, and the advice follows from it."""

import numpy as np
import pytest

from rayhier.index import change
from rayhier.index.stats import Stats
from rayhier.model.encoded import Encoded
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, batch, compacted, content
from .conftest import L, M, N, documents, unit


def test_a_fresh_index_is_well(made):
    found = Stats.of(LeafMap.open(made.root).manifest)
    assert (found.version, found.documents, found.leaves, found.void, found.added) == (1, N, L, 0, 0)
    assert found.added_log_prob is None
    assert found.log_prob == pytest.approx(
        np.mean([row["log_prob"] for (_, rank), row in content(LeafMap.open(made.root)).items() if rank == 0]), abs=1e-5
    )
    assert found.advice() == []


def test_many_deleted_and_many_added_want_a_compaction(made):
    change.delete(made.root, made.ids[:80])
    change.add(made.root, made.assign, batch([f"n{n}" for n in range(120)]), FACTOR)
    there = LeafMap.open(made.root)
    found = Stats.of(there.manifest)
    stored = sum(shard.rows for shard in there.manifest.shards)
    assert found.void == pytest.approx(1 - len(content(there)) / stored)
    said = "\n".join(found.advice())
    assert "of the stored rows are of removed documents" in said
    assert "outside the sorted shards" in said
    assert Stats.of(compacted(made.root).manifest).advice() == []


def test_documents_unlike_the_old_want_training(made):
    """Between centroids a document is less probable in its leaf than near one."""
    centroids = made.assign.router.cells.centroid_LM.numpy()
    near = centroids[np.arange(60) % L] + 0.01 * unit(2, 60, M)
    change.upsert(made.root, made.assign, [(documents(made.ids[:60]), Encoded.of(near))], FACTOR)
    compacted(made.root)
    change.delete(made.root, made.ids[60:])
    compacted(made.root)
    anywhere = unit(3, 50_000, M)
    logit = np.exp(20 * anywhere @ centroids.T)
    between = anywhere[np.argsort(logit.max(axis=1) / logit.sum(axis=1))[:120]]
    odd = [f"odd{n}" for n in range(120)]
    change.add(made.root, made.assign, [(documents(odd[:99]), Encoded.of(between[:99]))], FACTOR)
    assert not any("nats" in line for line in Stats.of(LeafMap.open(made.root).manifest).advice())
    change.add(made.root, made.assign, [(documents(odd[99:]), Encoded.of(between[99:]))], FACTOR)
    found = Stats.of(LeafMap.open(made.root).manifest)
    assert found.log_prob - found.added_log_prob > 1
    assert any("nats less probable" in line for line in found.advice())


def test_crowding_wants_training(made):
    centroid = made.assign.router.cells.centroid_LM[:1].numpy()
    vectors = centroid + 0.05 * unit(2, 400, M)
    change.add(made.root, made.assign, [(documents([f"n{n}" for n in range(400)]), Encoded.of(vectors))], FACTOR)
    assert any("imbalance" in line for line in Stats.of(LeafMap.open(made.root).manifest).advice())
