"""Opens the leaf map that a workdir's `current.json` names, and verifies its files."""

import contextlib
from collections.abc import Iterator

from rayhier.spec import InputError
from rayhier.storage import current, pins
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import CHANGING, LeafMap
from rayhier.storage.paths import Location


def index_root(workdir: Location, now: Current) -> Location:
    """Return the folder of the leaf map's versions. InputError if a file of the index is not as published."""
    index = current.artifact(workdir, now, "index")
    index.verify(without=CHANGING)
    return index.root


def open_leaf_map(workdir: Location, now: Current, version: int | None = None) -> LeafMap:
    """Open a version of the leaf map (None: the newest), and verify its files except the shards.

    InputError if a file is not as published, or another model built the leaf map.
    """
    return _of_model(LeafMap.open(index_root(workdir, now), version), now)


@contextlib.contextmanager
def reading_leaf_map(workdir: Location, now: Current, version: int | None = None) -> Iterator[LeafMap]:
    """Open and verify a version of the leaf map, but not its shards. Vacuum keeps the version in the `with` block."""
    with pins.reading(index_root(workdir, now), version) as leaf_map:
        yield _of_model(leaf_map, now)


def _of_model(leaf_map: LeafMap, now: Current) -> LeafMap:
    if leaf_map.manifest.model != now.artifacts.get("model"):
        raise InputError(f"{leaf_map.root}: got model {leaf_map.manifest.model}; allowed: {now.artifacts.get('model')}")
    return leaf_map
