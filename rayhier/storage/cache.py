"""Files on this machine that may go at any time: what was fetched from a bucket or made of what lies on storage.

They are kept by content. What was fetched once is checked, never fetched again.

The folder is $RAYHIER_CACHE, else ~/.cache/rayhier. It may be removed at any time that no run is using it.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.files import File
from rayhier.storage.remote import Remote

SIZES = "sizes.json"


def fetch(root: Remote, wanted: Sequence[File]) -> Path:
    """A folder that holds these files of `root`, under their names; InputError where one is not as listed."""
    folder = home() / _key(wanted)

    def fill(temporary: Path) -> None:
        for file in wanted:
            _download(root, file, temporary / file.name)

    return _filled(folder, fill, lambda: _holds(folder, wanted))


def made(kind: str, made_of: str, fill: Callable[[Path], None]) -> Path:
    """A folder that `fill` once wrote for what `made_of` says; InputError where the cache cannot be written.

    A file that is gone or of another size than it was written with is made again, with all others.
    """
    folder = home() / kind / hashlib.sha256(made_of.encode()).hexdigest()[:32]

    def complete() -> bool:
        try:
            listed: dict[str, int] = json.loads((folder / SIZES).read_bytes())
            return all((folder / name).stat().st_size == size for name, size in listed.items())
        except (OSError, ValueError):
            return False

    def fill_and_list(temporary: Path) -> None:
        temporary.mkdir(parents=True)
        fill(temporary)
        (temporary / SIZES).write_text(json.dumps({path.name: path.stat().st_size for path in temporary.iterdir()}))

    try:
        return _filled(folder, fill_and_list, complete)
    except OSError as error:
        raise InputError(
            f"{error.filename or folder}: {error.strerror or error}; searches keep what they read of an index on this "
            "machine, below $RAYHIER_CACHE, else ~/.cache/rayhier"
        ) from None


def _filled(folder: Path, fill: Callable[[Path], None], complete: Callable[[], bool]) -> Path:
    if complete():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        fill(temporary)
        temporary.rename(folder)
    except OSError:
        if not complete():  # else another process was first
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
