"""The version of an index that is served, chosen once so that later replicas open the same version."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Self

from rayhier.search.index import open_leaf_map, reading_leaf_map
from rayhier.search.routing.routes import Model
from rayhier.spec import InputError
from rayhier.storage import current
from rayhier.storage.artifact import Place
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import LeafMap, Manifest, ranges
from rayhier.storage.paths import Location, locate


@dataclass(frozen=True)
class Version:
    workdir: str
    now: Current
    number: int

    @classmethod
    def newest(cls, workdir: str, now: Current | None = None) -> tuple[Self, Manifest]:
        """Return the newest version of `now`'s index (None: current.json's) and its manifest. InputError if damaged."""
        if "://" not in workdir and not Path(workdir).is_absolute():
            raise InputError(f"workdir: got {workdir!r}; allowed: an absolute path, s3://… or gs://…")
        place = locate(workdir)
        now = now or current.read(place)
        manifest = open_leaf_map(place, now).manifest
        return cls(workdir, now, manifest.version), manifest

    def at(self, number: int) -> Self:
        return replace(self, number=number)

    def before(self) -> Location | None:
        """Return the folder of the index that current.json named before this index, or None if there is none."""
        index = self.now.before
        published = None if index is None else Place(locate(self.workdir) / "index" / index).published()
        return None if published is None else published.root

    def model(self) -> Model:
        """Open the trained model. InputError if a file differs from the published file."""
        place = locate(self.workdir)
        return Model.of_workdir(place, self.now, open_leaf_map(place, self.now, self.number))

    def router(self, leaf_map: LeafMap) -> Path:
        """Return the folder, on this machine, of the version's router, or of the model's router if there is none."""
        return leaf_map.router() or current.artifact(locate(self.workdir), self.now, "model").local("router")

    def reading(self) -> AbstractContextManager[LeafMap]:
        """Open and pin the leaf map at this version while the block runs. All files but shards are verified."""
        return reading_leaf_map(locate(self.workdir), self.now, self.number)


@dataclass(frozen=True)
class ShardRange:
    name: str
    leaves: range


def split(counts: Sequence[int], groups: int | None) -> list[ShardRange]:
    """Divide the leaves into contiguous shard groups (None: two) with about equal numbers of rows (`counts`).

    The last range has no end, because later splits append leaves. InputError if there are more groups than leaves.

    >>> [(part.name, part.leaves.start) for part in split([5, 1, 1, 1, 4], 2)]
    [('shards-0', 0), ('shards-1', 2)]
    """
    if groups is not None and groups > len(counts):
        raise InputError(f"shard_groups: got {groups}; allowed: 1 to {len(counts)}, the number of the index's leaves")
    begins = [first for first, _ in ranges(counts, groups or 2)]
    spans = pairwise([*begins, sys.maxsize])
    return [ShardRange(f"shards-{number}", range(*ends)) for number, ends in enumerate(spans)]
