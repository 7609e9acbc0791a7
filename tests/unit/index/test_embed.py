"""Encoded vectors take the place of carried ones, some documents at a time."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rayhier.index import change, pack
from rayhier.index.compact import replace_shards
from rayhier.index.shards import write_rows
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.storage import columns, leaf_map, schemas
from rayhier.storage.leaf_map import LeafMap

from ...draws import unit
from .conftest import L, M, N, documents

FACTOR = 4.0


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "index"


@pytest.fixture
def carried(folder, assign, write_map):
    """The root of an index of 200 documents d000 to d199 with carried vectors, and the true ones."""
    ids, true = [f"d{n:03d}" for n in range(N)], unit(0, N, M)
    near = true + 0.4 * unit(1, N, M)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    write_map(folder, assign(documents(ids), Encoded.of(near)), L, 3, leaves_per_document=2)

    def marked(now):
        shards = [shard.model_copy(update={"carried": True}) for shard in now.manifest.shards]
        return now.manifest.model_copy(update={"shards": shards, "carried": N})

    leaf_map.commit(folder, marked)
    return folder, true, near


def batch(true, *numbers):
    return documents([f"d{n:03d}" for n in numbers]), Encoded.of(true[list(numbers)])


def stored(root):
    """Vectors of all documents by their ids, each of which occurs once."""
    opened, vectors = LeafMap.open(root), {}
    for shard in opened.manifest.shards:
        table = opened.read(shard, ["doc_id", "rank", "vector"])
        table = table.filter(pc.equal(table["rank"], 0))
        for name, vector in zip(table["doc_id"].to_pylist(), columns.matrix(table["vector"]), strict=True):
            assert name not in vectors
            vectors[name] = vector
    return vectors


def test_some_documents_at_a_time_until_none_is_left(carried, assign):
    root, true, near = carried
    first = change.embed(root, assign, batch(true, *range(0, N, 2)), FACTOR).manifest
    assert (first.carried, first.documents, first.change) == (N // 2, N, "embed")
    vectors = stored(root)
    np.testing.assert_allclose(np.stack([vectors[f"d{n:03d}"] for n in range(0, N, 2)]), true[::2], atol=1e-6)
    np.testing.assert_allclose(np.stack([vectors[f"d{n:03d}"] for n in range(1, N, 2)]), near[1::2], atol=1e-6)
    verify(root)
    last = change.embed(root, assign, batch(true, *range(1, N, 2)), FACTOR).manifest
    assert (last.carried, len(last.shards), last.removed) == (0, 2, [])
    vectors = stored(root)
    np.testing.assert_allclose(np.stack([vectors[f"d{n:03d}"] for n in range(N)]), true, atol=1e-6)
    verify(root)


def test_documents_that_changed_meanwhile_are_refused(carried, assign):
    root, true, _ = carried
    change.upsert(root, assign, [(documents(["d007"]), Encoded.of(unit(5, 1, M)))], FACTOR)
    change.delete(root, ["d008"])
    before = LeafMap.open(root).manifest
    for number in (7, 8):
        with pytest.raises(InputError, match=f"ids: 1 without a carried vector: 'd00{number}'"):
            change.embed(root, assign, batch(true, 6, number), FACTOR)
    assert LeafMap.open(root).manifest == before
    rest = [n for n in range(N) if n not in (7, 8)]
    last = change.embed(root, assign, batch(true, *rest), FACTOR).manifest
    assert (last.carried, last.documents) == (0, N - 1)
    np.testing.assert_allclose(stored(root)["d007"], unit(5, 1, M)[0], atol=1e-6)
    assert "d008" not in stored(root)
    verify(root)


def test_changes_while_the_rest_is_encoded_stay(carried, assign):
    root, true, _ = carried
    change.embed(root, assign, batch(true, *range(100)), FACTOR)
    change.upsert(root, assign, [(documents(["d003"]), Encoded.of(unit(5, 1, M)))], FACTOR)
    change.delete(root, ["d004"])
    last = change.embed(root, assign, batch(true, *range(100, N)), FACTOR).manifest
    assert (last.carried, last.documents) == (0, N - 1)
    assert len(stored(root)) == N - 1
    np.testing.assert_allclose(stored(root)["d003"], unit(5, 1, M)[0], atol=1e-6)
    verify(root)


def test_a_compaction_waits_for_the_encoding(carried, assign):
    root, true, _ = carried
    with pytest.raises(InputError, match="200 vectors of version 2 were carried from another model"):
        replace_shards(LeafMap.open(root).manifest, [])
    change.embed(root, assign, batch(true, *range(N)), FACTOR)
    assert callable(replace_shards(LeafMap.open(root).manifest, []))


def test_carried_files_are_not_packed(carried, assign):
    root, true, _ = carried
    for number in range(pack.WIDTH):
        ids = [f"n{number}-{place}" for place in range(30)]
        change.add(root, assign, [(documents(ids), Encoded.of(unit(number, 30, M)))], FACTOR)
    packed = pack.pack(root)
    assert packed is not None
    assert len(change.carried_rows(packed)) == packed.manifest.carried == N
    change.embed(root, assign, batch(true, *range(N)), FACTOR)
    vectors = stored(root)
    np.testing.assert_allclose(np.stack([vectors[f"d{n:03d}"] for n in range(N)]), true, atol=1e-6)
    verify(root)


def test_passages_that_were_encoded_do_not_come_back(folder, assign, write_map):
    """Of each document one passage was carried, and another encoded as its text is new; they are encoded together."""
    passages = pa.table(
        [[f"d{n // 2}#{n % 2}" for n in range(40)], *2 * [["text"] * 40], [f"d{n // 2}" for n in range(40)]],
        schema=schemas.documents({}, passages=True),
    )
    vectors = unit(0, 40, M)
    write_map(folder, assign(passages.take(pa.array(range(0, 40, 2))), Encoded.of(vectors[::2])), L, 1)
    made = assign(passages.take(pa.array(range(1, 40, 2))), Encoded.of(vectors[1::2]))
    encoded = write_rows(folder, f"{change.EMBEDDED_ROWS}00000.parquet", made, words=None)

    def marked(now):
        shards = [shard.model_copy(update={"carried": True}) for shard in now.manifest.shards]
        with_both = change.with_shards(now.manifest, [encoded], 1, "build")
        return with_both.model_copy(update={"shards": [*shards, encoded], "carried": 20})

    leaf_map.commit(folder, marked)
    last = change.embed(folder, assign, (passages, Encoded.of(vectors)), FACTOR).manifest
    assert last.carried == 0
    assert len(stored(folder)) == last.documents == 40
    verify(folder)
