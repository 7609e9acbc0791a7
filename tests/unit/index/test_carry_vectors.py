"""Vectors of an older index are moved for documents that are the same; others are encoded."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rayhier.dataset.documents import document_texts
from rayhier.index import carry_vectors
from rayhier.index.carry_vectors import Carrier
from rayhier.model.vector_map import VectorMap
from rayhier.spec import InputError
from rayhier.storage import columns, files
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.leaf_map import LeafMap

from ..serve.conftest import MODEL, OTHER_INDEX, OTHER_MODEL, TEXTS, N
from .test_carry_changes import FIELDS, INDEX, Two


@pytest.fixture
def two(tmp_path, tiny_model, write_map):
    return Two(tmp_path / "work", tiny_model, write_map)


def corpus_of(two, rows, fields=FIELDS):
    """A corpus in two files."""
    with Attempt.start(Place(two.work / "corpus" / "d1d1d1d1d1d1")) as attempt:
        half = len(rows) // 2
        for number, part in enumerate((rows[:half], rows[half:])):
            files.write_parquet(
                attempt.root, f"documents/{number}.parquet", [pa.Table.from_pylist(part, fields)], fields
            )
        attempt.publish("corpus", {}, Output({}))
    return Artifact.open(two.work / "corpus" / "d1d1d1d1d1d1")


def same(numbers):
    return [{"doc_id": f"d{n}", "title": f"title {n}", "text": TEXTS[n], "year": 1900 + n} for n in numbers]


def carry(two, rows, tmp_path, fields=FIELDS):
    before, model = LeafMap.open(two.root(INDEX)), two.model(OTHER_INDEX)
    carrier = Carrier(corpus_of(two, rows, fields), before, model, OTHER_MODEL, tmp_path / "scratch")
    return carrier.carry(tmp_path / "root"), model


def read(moved, root):
    """Rows in the first leaf of routed parts, and of encoded shards."""
    routed = [files.read_table(path) for path in moved.parts.paths]
    encoded = [files.read_table(root / shard.file.name) for shard in moved.encoded]
    return [
        pa.concat_tables(tables).filter(pc.equal(pa.concat_tables(tables)["rank"], 0)) for tables in (routed, encoded)
    ]


def test_same_documents_are_moved_and_others_encoded(two, tmp_path, monkeypatch):
    monkeypatch.setattr(carry_vectors, "SAMPLE", 50)
    new = [{"doc_id": f"n{n}", "title": "", "text": f"elm {TEXTS[n]}", "year": None} for n in range(4)]
    other = [row | {"text": "another text"} for row in same([5])] + [row | {"year": 7} for row in same([6])]
    rows = [*same(n for n in range(N) if n not in (5, 6, 9)), *new, *other]
    moved, model = carry(two, rows, tmp_path)
    carried, encoded = read(moved, tmp_path / "root")
    assert moved.documents == len(carried) > 50
    assert len(encoded) == len(rows) - len(carried) >= 40 + 6
    names = [*carried["doc_id"].to_pylist(), *encoded["doc_id"].to_pylist()]
    assert sorted(names) == sorted(row["doc_id"] for row in rows)
    assert {"n0", "n1", "n2", "n3", "d5", "d6"} <= set(encoded["doc_id"].to_pylist())
    assert sum(moved.counts) == sum(len(files.read_table(path)) for path in moved.parts.paths)
    true = model.encode(document_texts(encoded)).numpy
    np.testing.assert_allclose(columns.matrix(encoded["vector"]), true, atol=1e-3)
    near = np.vecdot(columns.matrix(carried["vector"]).astype(np.float32), model.encode(document_texts(carried)).numpy)
    assert near.mean() > 0.95
    learned = VectorMap.load(tmp_path / "root" / "map", (MODEL, OTHER_MODEL))
    assert (learned.kind, learned.cosine) == (moved.kind, moved.cosine)
    leaf = two.model(OTHER_INDEX).route(model.encode(["x"]), 1)[0]
    assert leaf.max() < len(moved.counts)


def test_nothing_in_common_is_encoded_whole(two, tmp_path):
    rows = [{"doc_id": f"n{n}", "title": "", "text": f"elm {TEXTS[n]}", "year": None} for n in range(30)]
    moved, _ = carry(two, rows, tmp_path)
    assert (moved.documents, moved.kind, sum(shard.documents for shard in moved.encoded)) == (0, "none", 30)
    assert not (tmp_path / "root" / "map").exists()


def test_a_column_that_the_older_index_lacks_is_refused(two, tmp_path):
    fields = FIELDS.append(pa.field("lang", pa.string()))
    with pytest.raises(InputError, match="the index that is served has no column lang; allowed: without --carry"):
        carry(two, [row | {"lang": "en"} for row in same(range(20))], tmp_path, fields)
