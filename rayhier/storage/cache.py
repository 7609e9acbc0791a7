"""Files of a bucket on this machine, kept by content: what was fetched once is checked, never fetched again.

The folder is $RAYHIER_CACHE, else ~/.cache/rayhier. It may be removed at any time that no run is using it.
"""

import hashlib
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.files import File
from rayhier.storage.remote import Remote


def fetch(root: Remote, wanted: Sequence[File]) -> Path:
    """A folder that holds these files of `root`, under their names; InputError where one is not as listed."""
    folder = home() / _key(wanted)
    if _holds(folder, wanted):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        for file in wanted:
            _download(root, file, temporary / file.name)
        temporary.rename(folder)
    except OSError:
        if not _holds(folder, wanted):  # else another process was first
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def home() -> Path:
    """Where fetched files are kept."""
    given = os.environ.get("RAYHIER_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "rayhier"


def _key(wanted: Sequence[File]) -> str:
    lines = sorted(f"{file.sha256} {file.name}\n" for file in wanted)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:32]


def _holds(folder: Path, wanted: Sequence[File]) -> bool:
    try:
        return all(files.digest(folder / file.name) == file.sha256 for file in wanted)
    except OSError:
        return False


def _download(root: Remote, file: File, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as opened:
        for chunk in (root / file.name).chunks():
            opened.write(chunk)
    if files.digest(path) != file.sha256:
        raise InputError(f"{root / file.name}: is not the file that was published; make its stage again with --fresh")
