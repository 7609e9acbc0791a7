"""What `current.json` names, opened and verified."""

import contextlib
from collections.abc import Iterator

from rayhier.model.router import Router, sparing
from rayhier.search.lazy import LazyMap
from rayhier.spec import InputError, JobSpec
from rayhier.spec.search import MassBeam, SearchSpec
from rayhier.storage import current, pins
from rayhier.storage.artifact import Artifact
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import CHANGING, LeafMap
from rayhier.storage.paths import Location


def open_model(workdir: Location, now: Current) -> Artifact:
    """The model, every file of it verified; InputError where one is not what was published."""
    model = current.artifact(workdir, now, "model")
    model.verify()
    return model


def spared(router: Router, search: SearchSpec) -> Router:
    """A router as a search takes it; InputError where it was not taught what the spec wants of it."""
    if not isinstance(search.beam, MassBeam):
        return router
    try:
        return sparing(router, search.beam.target)
    except ValueError as error:
        raise InputError(f"search.beam: got type mass, but {error}; allowed: auto or a whole number") from None


def index_root(workdir: Location, now: Current) -> Location:
    """Where the versions of the leaf map lie; InputError where what its record lists is not what was published."""
    index = current.artifact(workdir, now, "index")
    index.verify(without=CHANGING)
    return index.root


def open_leaf_map(workdir: Location, now: Current, version: int | None = None) -> LeafMap:
    """The leaf map at a version, the newest where none is given, verified but for the shards."""
    return _of_model(LeafMap.open(index_root(workdir, now), version), now)


@contextlib.contextmanager
def reading_leaf_map(workdir: Location, now: Current, version: int | None = None) -> Iterator[LeafMap]:
    """The same, kept from vacuum as long as the block lasts."""
    with pins.reading(index_root(workdir, now), version) as leaf_map:
        yield _of_model(leaf_map, now)


def _of_model(leaf_map: LeafMap, now: Current) -> LeafMap:
    if leaf_map.manifest.model != now.artifacts.get("model"):
        raise InputError(
            f"{leaf_map.root}: was built by model {leaf_map.manifest.model}, not {now.artifacts.get('model')}"
        )
    return leaf_map


def open_leaves(spec: JobSpec, leaf_map: LeafMap, leaves: range | None = None) -> LazyMap:
    """What a search scans of it, as the spec has it: all leaves, or a range."""
    codec = spec.search.codec
    return LazyMap(leaf_map, None if codec == "auto" else codec, leaves)
