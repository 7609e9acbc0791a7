"""Removing what no version that is kept or read needs any more."""

from collections.abc import Sequence
from dataclasses import dataclass

from rayhier.spec import InputError
from rayhier.storage import files, leaf_map, pins
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.storage.paths import Location

FOLDERS = ("data/", "removed/", "work/")
"""Where files lie that only manifests, or work that is under way, name."""
HOURS = 24.0
"""Age at which a file that no manifest names is no longer one that a writer is about to publish."""


@dataclass(frozen=True)
class Swept:
    """What was removed."""

    versions: list[int]
    held: list[int]
    """Older versions that stay, since someone reads them or writes beside them."""
    files: int
    bytes: int


def vacuum(root: Location, keep: int = 1, hours: float = HOURS) -> Swept:
    """Remove all but the newest `keep` versions and those that are pinned, then files that none of the rest needs.

    Files that no manifest ever named stay while someone writes, and while they are younger than `hours`. Manifests go
    first, and what is left is read again before any file goes, so that a version that is pinned or published meanwhile
    is whole. InputError where the manifest of a version that stays is damaged; older ones may be.
    """
    there = leaf_map.versions(root)
    older = set(there[:-keep])
    every = _manifests(root, there, older)
    doomed = older - pins.held(root)
    for version in doomed:
        leaf_map.remove_version(root, version)
    # Who pinned one between the two looks reads on.
    for version in doomed & pins.held(root) & every.keys():
        leaf_map.publish(root, every[version])
        doomed.remove(version)
    # Files, then writers, then manifests: whose files are in the list is still writing, or has published them.
    listed, writing = files.below(root), pins.writing(root)
    needed = _needed(root, every)
    named = {file.name for manifest in every.values() for file in manifest.files}
    removed = size = 0
    for name in listed:
        if not name.startswith(FOLDERS) or name in needed:
            continue
        try:
            found = (root / name).stat()
        except FileNotFoundError:  # a writer's, under its last name by now, or another vacuum's
            continue
        if name in named or (not writing and leaf_map.now() - found.st_mtime > 3600 * hours):
            (root / name).unlink(missing_ok=True)
            removed, size = removed + 1, size + found.st_size
    pins.sweep(root)
    return Swept(sorted(doomed), sorted(older - doomed), removed, size)


def _manifests(root: Location, there: Sequence[int], older: set[int]) -> dict[int, Manifest]:
    """Of all versions; older ones are left out where they are damaged, or gone by now."""
    found = {}
    for version in there:
        try:
            found[version] = LeafMap.open(root, version).manifest
        except InputError:
            if version not in older:
                raise
    return found


def _needed(root: Location, before: dict[int, Manifest]) -> set[str]:
    """Files of every version that is there now, or that someone pinned before it was removed."""
    # Pins first: who unpins after this has published before manifests are listed.
    pinned = [before[version] for version in pins.held(root) if version in before]
    there = [LeafMap.open(root, version).manifest for version in leaf_map.versions(root)]
    return {file.name for manifest in (*there, *pinned) for file in manifest.files}
