"""A snapshot reads a range of leaves by the spec's codec, and refuses what the spec has none of."""

import numpy as np
import pytest

from rayhier.search.level_similarity import FlatQuery
from rayhier.search.retrieve import Flat, Scan, Words
from rayhier.search.snapshot import Snapshot
from rayhier.spec import JobSpec
from rayhier.storage.leaf_map import LeafMap

from . import numbered
from .numbered import SPEC, L

vectors, router, leaf_of, leaf_map = (getattr(numbered, name) for name in ("vectors", "router", "leaf_of", "leaf_map"))
EVERY = np.tile(np.arange(L), (2, 1))


def spec_of(**search):
    return JobSpec.model_validate({**SPEC, "search": {**SPEC["search"], **search}})


def no_model():
    raise AssertionError("a snapshot opens no model to read")


def test_what_the_spec_has_none_of_is_refused(leaf_map, vectors):
    shards = [shard.model_copy(update={"postings": None}) for shard in leaf_map.manifest.shards]
    bare = LeafMap(leaf_map.root, leaf_map.manifest.model_copy(update={"shards": shards}))
    reader = Snapshot(spec_of(), bare, no_model)
    with pytest.raises(ValueError, match=r"^words: got a query for an index that counts no words$"):
        reader.read(Words(["oak"], vectors[:1], 5))
    with pytest.raises(ValueError, match=r"^flat: got a query for an index whose spec searches leaves$"):
        reader.read(Flat(FlatQuery(vectors[:1], None), 5))


def test_a_range_of_leaves_is_read_alone(leaf_map, vectors, leaf_of):
    held = Snapshot(spec_of(hybrid={}), leaf_map, no_model, leaves=range(2, 4))
    given = held.read(Scan(vectors[:2], EVERY, 60))
    assert set(given.ids) == {f"d{row}" for row in np.flatnonzero(np.isin(leaf_of, [2, 3]))}
    words = held.read(Words(["text", "text"], vectors[:2], 60)).ranking
    assert set(words.ids) == set(given.ids)


@pytest.mark.parametrize(("codec", "opened"), [("auto", "flat"), ("fp16", "fp16")])
def test_the_specs_codec_is_used(leaf_map, codec, opened):
    assert Snapshot(spec_of(codec=codec), leaf_map, no_model).leaves.codec == opened
