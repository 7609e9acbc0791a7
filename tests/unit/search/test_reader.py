"""A reader does each kind of work as the scan behind it does, and refuses what the spec has none of."""

import numpy as np
import pytest

from rayhier.search.hybrid import WordScan
from rayhier.search.level_similarity import FlatQuery
from rayhier.search.reader import Reader
from rayhier.search.retrieve import Flat, Scan, Words
from rayhier.search.scan import LeafScan
from rayhier.spec import JobSpec
from rayhier.spec.filter import Bound
from rayhier.storage.leaf_map import LeafMap

from . import numbered
from .numbered import SPEC, L

vectors, router, leaf_of, leaf_map = (getattr(numbered, name) for name in ("vectors", "router", "leaf_of", "leaf_map"))
WHERE = Bound("leaf", "gt", 2)
EVERY = np.tile(np.arange(L), (2, 1))


def spec_of(**search):
    return JobSpec.model_validate({**SPEC, "search": {**SPEC["search"], **search}})


def same(given, wanted):
    np.testing.assert_array_equal(given.score_QK, wanted.score_QK)
    np.testing.assert_array_equal(given.row_QK, wanted.row_QK)
    assert given.documents.equals(wanted.documents)


@pytest.mark.parametrize("where", [None, WHERE], ids=["all", "filtered"])
@pytest.mark.parametrize("needs", ["ids", "texts", "vectors"])
def test_leaves_and_words_are_read_as_by_their_scans(leaf_map, vectors, where, needs):
    reader, leaves = Reader.open(spec_of(hybrid={}), leaf_map, None), LeafScan.mapped(leaf_map)
    given = reader.read(Scan(vectors[:2], EVERY, 5, where, needs))
    same(given, leaves.scan(vectors[:2], EVERY, 5, where, needs=needs))
    assert ("vector" in given.documents.column_names) is (needs == "vectors")
    assert ("text" in given.documents.column_names) is (needs != "ids")
    assert given.documents.num_rows > 0
    texts = ["text 7", "title 3"]
    lexical = reader.read(Words(texts, vectors[:2], 60, where, needs))
    wanted = WordScan.mapped(leaf_map, leaves).scan(texts, vectors[:2], 60, where, needs=needs)
    same(lexical.ranking, wanted.ranking)
    np.testing.assert_array_equal(lexical.base_QK, wanted.base_QK)
    assert lexical.ranking.documents.num_rows > 0


def test_a_level_is_read_as_its_scan_says(leaf_map):
    asked = []

    class Levels:
        def shortlist(self, *given, **named):
            asked.append((given, named))
            return "a shortlist"

        def intact(self):
            return False

    query = FlatQuery(np.ones((1, 2), np.float32), None)
    reader = Reader(LeafScan.mapped(leaf_map), None, Levels())
    assert reader.read(Flat(query, 12, WHERE, needs="vectors")) == "a shortlist"
    assert asked == [((query, 12, WHERE), {"needs": "vectors"})]
    assert not reader.intact()
    assert Reader(LeafScan.mapped(leaf_map)).intact()


def test_what_the_spec_has_none_of_is_refused(leaf_map, vectors):
    shards = [shard.model_copy(update={"postings": None}) for shard in leaf_map.manifest.shards]
    bare = LeafMap(leaf_map.root, leaf_map.manifest.model_copy(update={"shards": shards}))
    reader = Reader.open(spec_of(), bare, None)
    with pytest.raises(ValueError, match=r"^words: got a query for an index that counts no words$"):
        reader.read(Words(["oak"], vectors[:1], 5))
    with pytest.raises(ValueError, match=r"^flat: got a query for an index whose spec searches leaves$"):
        reader.read(Flat(FlatQuery(vectors[:1], None), 5))


def test_a_range_of_leaves_is_read_alone(leaf_map, vectors, leaf_of):
    held = Reader.open(spec_of(hybrid={}), leaf_map, None, range(2, 4))
    given = held.read(Scan(vectors[:2], EVERY, 60))
    assert set(given.ids) == {f"d{row}" for row in np.flatnonzero(np.isin(leaf_of, [2, 3]))}
    words = held.read(Words(["text", "text"], vectors[:2], 60)).ranking
    assert set(words.ids) == set(given.ids)


@pytest.mark.parametrize(("codec", "opened"), [("auto", "flat"), ("fp16", "fp16")])
def test_the_specs_codec_is_used(leaf_map, codec, opened):
    assert Reader.open(spec_of(codec=codec), leaf_map, None).leaves.codec == opened
