"""Any change of any byte of a leaf map is refused, by the name of the file."""

import numpy as np
import pytest

from rayhier.index import change
from rayhier.index.verify import verify
from rayhier.spec import InputError
from rayhier.storage import files, leaf_map
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.leaf_map import LeafMap, Manifest, publish

from .changes import FACTOR, batch
from .conftest import L, M, N, documents, unit

MUTATIONS = 1000


@pytest.fixture
def index(assign, write_map, tmp_path):
    """A published index artifact of three versions."""
    with Attempt.start(Place(tmp_path / "index" / "0123456789ab")) as attempt:
        write_map(attempt.root, assign(documents([f"d{n:03d}" for n in range(N)]), unit(0, N, M)), L, 3)
        table = documents(["leaf"])
        leaves = files.write_parquet(attempt.root, "leaves.parquet", [table], table.schema)
        artifact = attempt.publish("index", {}, Output({}, (leaves,)))
    change.add(artifact.root, assign, batch(["a", "b"]), FACTOR)
    change.upsert(artifact.root, assign, batch(["b", "d001"]), FACTOR)
    return artifact


def read(folder):
    """All that a reader may open, verified."""
    artifact = Artifact.open(folder)
    leaf_map.verify(artifact)
    verify(artifact.root)


def mutated(data, kind, rng):
    at = int(rng.integers(len(data)))
    match kind:
        case "flip":
            return data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]
        case "truncate":
            return data[:at]
        case _:
            return data[:at] + rng.bytes(3) + data[at:]


def test_a_thousand_mutations_are_all_caught(index):
    """A flipped bit, a cut, an insertion, a missing file. (A manifest that is gone is a version that is gone.)"""
    names = [name for name in files.below(index.folder) if name.endswith((".parquet", ".json")) and "owner" not in name]
    assert sum("/manifests/" in name for name in names) == 3
    assert {"record.json"} < set(names)
    rng = np.random.default_rng(0)
    for number in range(MUTATIONS):
        name = names[number % len(names)]
        kind = ("flip", "truncate", "insert", "missing")[number // len(names) % 4]
        path = index.folder / name
        if kind == "missing" and "/manifests/" in name:
            continue
        data = path.read_bytes()
        path.unlink()
        if kind != "missing":
            path.write_bytes(mutated(data, kind, rng))
        with pytest.raises(InputError) as caught:
            read(index.folder)
        assert (path.name if name != "record.json" else str(index.folder)) in str(caught.value), (number, kind)
        path.write_bytes(data)
    read(index.folder)


def forged(index, **changed):
    """The newest version again, with a manifest that says something else."""
    newest = LeafMap.open(index.root).manifest
    publish(index.root, newest.model_copy(update={"version": 4, "parent": 3, **changed}))


def test_a_document_that_lies_twice_is_told(index):
    newest: Manifest = LeafMap.open(index.root).manifest
    late = newest.shards[0].model_copy(update={"since": 3})
    counts = np.array(newest.counts)
    counts[late.leaves] += np.diff(late.offsets)
    more = newest.documents + late.documents
    forged(index, shards=[*newest.shards, late], counts=counts.tolist(), documents=more)
    with pytest.raises(InputError, match=r"version 4: (a document has two rows of rank 0|leaf)"):
        verify(index.root)


def test_counts_that_are_not_the_files_are_told(index):
    newest = LeafMap.open(index.root).manifest
    forged(index, counts=[newest.counts[0] + 1, newest.counts[1] - 1, *newest.counts[2:]])
    with pytest.raises(InputError, match="version 4: leaf 0 holds"):
        verify(index.root)
    verify(index.root, 3)


def test_a_lost_document_is_told(index):
    newest = LeafMap.open(index.root).manifest
    forged(index, documents=newest.documents + 1)
    with pytest.raises(InputError, match=f"{newest.documents} documents, {newest.documents + 1} in the manifest"):
        verify(index.root)


def test_a_manifest_whose_offsets_are_wrong_is_told(index):
    newest = LeafMap.open(index.root).manifest
    shard = newest.shards[0]
    wrong = shard.model_copy(update={"offsets": [0, shard.offsets[1] + 1, *shard.offsets[2:]]})
    forged(index, shards=[wrong, *newest.shards[1:]])
    with pytest.raises(InputError, match=r"0\.parquet: leaves do not lie where the manifest says"):
        verify(index.root)
