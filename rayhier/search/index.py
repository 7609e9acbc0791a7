"""The leaf map that `current.json` names, opened and verified."""

import contextlib
from collections.abc import Iterator

from rayhier.search.level import LevelScan
from rayhier.search.model import Model
from rayhier.search.scan import LeafScan
from rayhier.spec import InputError, JobSpec
from rayhier.storage import current, pins
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import CHANGING, LeafMap
from rayhier.storage.paths import Location


def index_root(workdir: Location, now: Current) -> Location:
    """Folder of the leaf map's versions; InputError where a file that its record lists is not as published."""
    index = current.artifact(workdir, now, "index")
    index.verify(without=CHANGING)
    return index.root


def open_leaf_map(workdir: Location, now: Current, version: int | None = None) -> LeafMap:
    """Open the leaf map at a version, by default the newest, verified except for its shards."""
    return _of_model(LeafMap.open(index_root(workdir, now), version), now)


@contextlib.contextmanager
def reading_leaf_map(workdir: Location, now: Current, version: int | None = None) -> Iterator[LeafMap]:
    """Open the leaf map at a version, by default the newest; vacuum keeps it while the block runs."""
    with pins.reading(index_root(workdir, now), version) as leaf_map:
        yield _of_model(leaf_map, now)


def _of_model(leaf_map: LeafMap, now: Current) -> LeafMap:
    if leaf_map.manifest.model != now.artifacts.get("model"):
        raise InputError(
            f"{leaf_map.root}: was built by model {leaf_map.manifest.model}, not {now.artifacts.get('model')}"
        )
    return leaf_map


def open_levels(model: Model, leaf_map: LeafMap, leaves: LeafScan) -> LevelScan | None:
    """A search by a level over the leaves of an opened scan, where the model's spec asks for one.

    InputError where a shard has nothing that this model made to compare by.
    """
    if model.level_similarity is None:
        return None
    return LevelScan.mapped(model.level_similarity, leaf_map, leaves, model.spec.search.cache_gb * 1e9)


def open_leaves(spec: JobSpec, leaf_map: LeafMap, leaves: range | None = None) -> LeafScan:
    """A scan of a leaf map with the spec's codec and cache: of all leaves, or of a range."""
    codec, cache_bytes = spec.search.codec, spec.search.cache_gb * 1e9
    return LeafScan.mapped(leaf_map, None if codec == "auto" else codec, leaves, cache_bytes)
