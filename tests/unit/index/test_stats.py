"""Drift is a number, and the advice follows from it."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import leaf_maps
from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.stats import SURPRISE, Stats
from rayhier.model.encoded import Encoded
from rayhier.model.router import opened
from rayhier.storage.leaf_map import LeafMap

from ...toys import job
from .changes import content
from .conftest import L, N, documents, unit

WIDTH = 128


def test_a_fresh_index_is_well_until_many_documents_surprise(made):
    found = Stats.of(LeafMap.open(made.root).manifest)
    assert (found.version, found.documents, found.leaves, found.void, found.added) == (1, N, L, 0, 0)
    assert found.added_log_prob is None
    assert found.log_prob == pytest.approx(
        np.mean([row["log_prob"] for (_, rank), row in content(LeafMap.open(made.root)).items() if rank == 0]), abs=1e-5
    )
    assert found.advice() == []
    # Few documents tell nothing.
    stats = replace(found, log_prob=-0.1, added_log_prob=-0.2 - SURPRISE)
    assert replace(stats, added_documents=99).advice() == []
    (line,) = replace(stats, added_documents=100).advice()
    assert line.startswith("retrain: new documents are 1.70 nats less probable")
    assert replace(stats, added_documents=100, added_log_prob=-0.05 - SURPRISE).advice() == []


def of_leaves(leaves):
    """A spec that makes so many leaves, of however many documents, or `auto` of them."""
    return job(router={"type": "learned_ivf", "branching": leaves})


class Stream:
    """Documents around topics, as many leaves as the spec makes of them, and documents that come later."""

    def __init__(self, root, write_map):
        self.rng, self.root, self.spec = np.random.default_rng(0), root, of_leaves("auto")
        self.topic_TM = unit(5, 200, WIDTH)
        base = self.near(range(200), 800)
        router = leaf_maps.settled(self.spec, base, len(base))
        self.assign = Assigner(opened(router), self.spec)
        self.ids = [f"d{n}" for n in range(len(base))]
        write_map(root, self.assign(documents(self.ids), Encoded(base)), router.n_leaves, 2, leaves_per_document=2)

    def near(self, topics, count):
        """Vectors near some topics, each in the share of a document."""
        vectors = self.topic_TM[self.rng.choice(list(topics), count)] + 0.05 * self.rng.normal(size=(count, WIDTH))
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def add(self, vectors):
        ids = [f"n{n}" for n in range(len(vectors))]
        change.add(self.root, self.assign, [(documents(ids), Encoded(vectors))], 8.0)

    def advice(self):
        stats = Stats.of(LeafMap.open(self.root).manifest, self.spec)
        return [line.partition(":")[0] for line in stats.advice()]


STREAMS = {
    "nothing: a fifth more of the same": (lambda stream: stream.add(stream.near(range(200), 160)), set()),
    "nothing: a tenth deleted": (lambda stream: change.delete(stream.root, stream.ids[::10]), set()),
    "many deleted": (lambda stream: change.delete(stream.root, stream.ids[: 800 * 2 // 5]), {"compact"}),
    "topics that grow": (lambda stream: stream.add(stream.near(range(5), 220)), {"maintain"}),
    "as many again": (lambda stream: stream.add(stream.near(range(200), 800)), {"compact", "maintain"}),
    "unlike all that were there": (lambda stream: stream.add(unit(7, 200, WIDTH)), {"retrain"}),
}


@pytest.mark.parametrize(("changes", "advised"), STREAMS.values(), ids=STREAMS)
def test_streams_of_changes_and_what_each_needs(tmp_path, write_map, changes, advised):
    stream = Stream(tmp_path / "map", write_map)
    assert stream.advice() == []
    changes(stream)
    assert set(stream.advice()) == advised
