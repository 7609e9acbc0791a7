"""Finds the workdir, the place of a run's artifacts, and checks that a run can write there."""

import os
from pathlib import Path

from rayhier.spec import InputError
from rayhier.storage import paths
from rayhier.storage.paths import Location
from rayhier.storage.remote import Remote


def find(text: str) -> Location:
    """Return the location of a workdir. InputError if the place seems not to be writable. The check writes nothing."""
    if "://" not in text:
        local = paths.resolve("workdir", text)
        _check_writable(local)
        return local
    place = paths.locate(text)
    if isinstance(place, Remote):
        _check_answers(place)
    return place


def point_at(place: Location, target: Location) -> None:
    """Make a local `place` a symbolic link to a published folder, in one step, unless a user's own file is there."""
    if not isinstance(place, Path) or not isinstance(target, Path):
        return
    if place.exists() and not place.is_symlink():
        return  # a user's own file or folder
    link = place.with_name(f".{place.name}.{os.getpid()}")
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(target, place.parent))
    link.replace(place)


def _check_answers(place: Remote) -> None:
    try:
        place.reach()
    except OSError as error:
        raise InputError(
            f"workdir: {place} cannot be opened: {error.strerror}; allowed: a bucket, and credentials, region and "
            "endpoint (AWS_…, GOOGLE_…) to list and write it"
        ) from None


def _check_writable(workdir: Path) -> None:
    parent = workdir
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise InputError(f"workdir: {parent} is not a folder; allowed: a folder this user can write")
    is_read_only = os.statvfs(parent).f_flag & os.ST_RDONLY or parent.is_relative_to("/proc")
    if is_read_only or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"workdir: {parent} cannot be written; allowed: a folder this user can write")
