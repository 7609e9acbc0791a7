"""A pyarrow file system over a bucket, for Ray Train, which writes its checkpoints through pyarrow.

pyarrow's own S3FileSystem is not used: it finds credentials in another way and leaves an empty object for every folder,
which would remain after its files are removed.
"""

from pathlib import Path
from typing import Any

from obstore.fsspec import BufferedFile, FsspecStore
from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

from rayhier.storage.paths import Location
from rayhier.storage.remote import CLIENT


class _File(BufferedFile):
    def write(self, data: Any) -> int:
        """Write data as bytes: pyarrow passes signed bytes, which the store refuses."""
        return super().write(bytes(data))


class _Store(FsspecStore):
    def _open(self, path: str, mode: Any = "rb", **_options: Any) -> Any:  # type: ignore[override]
        return _File(self, path, mode)


def filesystem(place: Location) -> tuple[FileSystem | None, str]:
    """Return a pyarrow file system for a place in a bucket, and the path in it; None and the path for a local place."""
    if isinstance(place, Path):
        return None, str(place)
    scheme, _, bucket = place.bucket.partition("://")
    store = _Store(scheme, client_options=CLIENT)  # type: ignore[call-overload]
    return PyFileSystem(FSSpecHandler(store)), f"{bucket}/{place.key}"
