"""Vacuum: remove old versions of an index, and the files that no version needs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rayhier.spec import InputError
from rayhier.storage import files, leaf_map, pins
from rayhier.storage.change_log import KEPT, ChangeLog
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.storage.paths import Location

FOLDERS = ("data/", "words/", "removed/", "routers/", "work/")
"""Folders in which a vacuum removes files that no remaining version needs."""
HOURS = 24.0
"""Age in hours above which a file that no manifest lists counts as abandoned by its writer."""


@dataclass(frozen=True)
class Swept:
    versions: list[int]
    held: list[int]
    """Older versions that stay because readers or writers use them."""
    files: int
    bytes: int


def vacuum(root: Location, keep: int = 1, hours: float = HOURS, taken: int | None = None) -> Swept:
    """Remove all versions except the newest `keep` and pinned versions, then files that no remaining version needs.

    Objects of the change log are removed if the files of all versions hold them. The newest objects stay. Changes
    after number `taken` stay, because another index takes them over. Files that no manifest ever listed stay while a
    writer has a pin, and while they are younger than `hours`. Manifests are removed first, and the rest are read again
    before files. So a version that is pinned or published meanwhile stays complete. InputError if a remaining manifest
    is damaged.
    """
    numbers = leaf_map.versions(root)
    older = set(numbers[:-keep])
    manifests = _manifests(root, numbers, older)
    # Numbers above a writer's version must not become free, so that the writer learns if its number was taken.
    oldest = min(pins.written(root), default=math.inf)
    doomed = {version for version in older - pins.held(root) if version < oldest}
    for version in doomed:
        leaf_map.remove_version(root, version)
    # A version that was pinned between the two readings of pins is published again.
    for version in doomed & pins.held(root) & manifests.keys():
        leaf_map.publish(root, manifests[version])
        doomed.remove(version)
    # Read files, then writers, then manifests: the writer of a listed file still has a pin, or has published it.
    listed, writing = files.below(root), pins.written(root)
    needed = _needed(root, manifests)
    named = {file.name for manifest in manifests.values() for file in manifest.files}
    removed = size = 0
    for name in listed:
        if not name.startswith(FOLDERS) or name in needed:
            continue
        try:
            status = (root / name).stat()
        except FileNotFoundError:  # a writer renamed it, or another vacuum removed it
            continue
        if name in named or (not writing and leaf_map.now() - status.st_mtime > 3600 * hours):
            (root / name).unlink(missing_ok=True)
            removed, size = removed + 1, size + status.st_size
    last = min(LeafMap.open(root, version).manifest.log for version in leaf_map.versions(root)) - KEPT
    logged = ChangeLog(root).forget(last if taken is None else min(last, taken))
    removed, size = removed + len(logged), size + sum(logged)
    pins.sweep(root)
    return Swept(sorted(doomed), sorted(older - doomed), removed, size)


def _manifests(root: Location, numbers: Sequence[int], older: set[int]) -> dict[int, Manifest]:
    """Read the manifests of versions. Damaged or missing manifests of `older` versions are left out."""
    manifests = {}
    for version in numbers:
        try:
            manifests[version] = LeafMap.open(root, version).manifest
        except InputError:
            if version not in older:
                raise
    return manifests


def _needed(root: Location, before: dict[int, Manifest]) -> set[str]:
    """Return the names of the files of all versions, including removed versions that readers pinned before."""
    # Read pins first: a process that unpins later has published before manifests are listed.
    pinned = [before[version] for version in pins.held(root) if version in before]
    manifests = [LeafMap.open(root, version).manifest for version in leaf_map.versions(root)]
    return {file.name for manifest in (*manifests, *pinned) for file in manifest.files}
