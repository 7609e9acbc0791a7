"""Any change of any byte of a leaf map is refused, by the name of the file."""

import re

import numpy as np
import pyarrow as pa
import pytest

from rayhier.index import change
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.storage import columns, files, leaf_map, parquet, schemas
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.change_log import LOG, Change, ChangeLog
from rayhier.storage.leaf_map import LeafMap, publish

from .changes import FACTOR, batch
from .conftest import L, M, N, documents, unit

MUTATIONS = 240


@pytest.fixture
def index(assign, write_map, tmp_path):
    """A published index artifact of three versions."""
    with Attempt.start(Place(tmp_path / "index" / "0123456789ab")) as attempt:
        write_map(attempt.root, assign(documents([f"d{n:03d}" for n in range(N)]), Encoded(unit(0, N, M))), L, 3)
        table = documents(["leaf"])
        leaves = parquet.write(attempt.root, "leaves.parquet", [table], table.schema)
        artifact = attempt.publish("index", {}, Output({}, (leaves,)))
    change.add(artifact.root, assign, batch(["a", "b"]), FACTOR)
    change.upsert(artifact.root, assign, batch(["b", "d001"]), FACTOR)
    return artifact


def every_version(folder):
    verify(Artifact.open(folder).root)


def the_newest(folder):
    leaf_map.verify(Artifact.open(folder))


def reading(name):
    """Those of the two that read a file below an artifact's folder."""
    older = re.search(r"/manifests/v00000[12]", name)
    changes = re.search(r"/(data|manifests|removed)/", name)
    return [every_version] * bool(changes or name == "record.json") + [the_newest] * (not older)


def mutated(data, kind, rng):
    at = int(rng.integers(len(data)))
    match kind:
        case "flip":
            return data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]
        case "truncate":
            return data[:at]
        case _:
            return data[:at] + rng.bytes(3) + data[at:]


def test_any_mutation_is_caught(index):
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
        for read in reading(name):
            with pytest.raises(InputError) as caught:
                read(index.folder)
            assert (path.name if name != "record.json" else str(index.folder)) in str(caught.value), (number, kind)
        path.write_bytes(data)
    every_version(index.folder)
    the_newest(index.folder)


def shifted(manifest):
    shard = manifest.shards[0]
    wrong = shard.model_copy(update={"offsets": [0, shard.offsets[1] + 1, *shard.offsets[2:]]})
    return {"shards": [wrong, *manifest.shards[1:]]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda manifest: {"counts": [manifest.counts[0] + 1, *manifest.counts[1:]]}, "version 4: leaf 0 has"),
        (lambda manifest: {"documents": manifest.documents + 1}, r"\d+ documents, but \d+ in the manifest"),
        (shifted, r"0\.parquet: the manifest has other places of leaves"),
    ],
)
def test_a_manifest_that_differs_from_the_files_is_told(index, change, said):
    newest = LeafMap.open(index.root).manifest
    publish(index.root, newest.model_copy(update={"version": 4, "parent": 3, **change(newest)}))
    with pytest.raises(InputError, match=said):
        verify(index.root)
    verify(index.root, 3)


def test_a_damaged_change_is_told(index):
    log = ChangeLog(index.root)
    for number in (1, 2, 3):
        log.append(Change(number, "delete", pa.table({"doc_id": ["d002"]}), documents=1))
    change.fold(index.root)
    log.tidy(3)
    verify(index.root)
    (path,) = (index.root / LOG).glob("*.changes")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(InputError, match=re.escape(path.name)):
        verify(index.root)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("a", 0, 0), ("a", 1, 1), ("a", 1, 2), ("b", 0, 0)], "a document has two rows of rank 1"),
        ([("a", 0, 0), ("a", 0, 1), ("b", 0, 0)], "a document has two rows of rank 0"),
        ([("a", 0, 0), ("b", 1, 1)], "a document has a second row and no first"),
    ],
)
def test_a_second_row_stands_once_and_beside_a_first(folder, write_map, rows, said):
    names, rank, leaf = (list(column) for column in zip(*rows, strict=True))
    vectors = columns.vector_column(unit(0, len(rows), M), pa.float32())
    columns_ = [names, leaf, rank, [[one] for one in leaf], [0.0] * len(rows), vectors, names, names]
    write_map(folder, pa.table(columns_, schema=schemas.leaf_map(M, "float32")), 3, 1, leaves_per_document=2)
    with pytest.raises(InputError, match=f"version 1: {said}"):
        verify(folder)
