"""Locations in a bucket (`s3://`, `gs://`), with the part of pathlib's interface that artifacts need.

A bucket has no folders, only objects whose keys share a prefix. Endpoint, region and credentials come from environment
variables (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …, GOOGLE_APPLICATION_CREDENTIALS) or from the machine's own role.
Every failure of a store is an OSError.
"""

import contextlib
import errno
import fnmatch
import functools
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

CHUNK_BYTES = 1 << 20
PART = 16 << 20
"""Bytes of one part of an upload. A store accepts at most ten thousand parts of one object."""
UPLOADS = 4
CLIENT: dict[str, Any] = {
    "allow_http": True,  # default endpoints use https, so this applies only if the user's endpoint says http
    "timeout": timedelta(minutes=15),
    "read_timeout": timedelta(seconds=60),
}
SOON: dict[str, Any] = {"max_retries": 1, "retry_timeout": timedelta(seconds=5)}
SAID = 300


@dataclass(frozen=True)
class Stat:
    st_size: int
    st_mtime: float


@dataclass(frozen=True, order=True)
class Remote:
    """A bucket and a key, which names an object or a prefix of keys. Making a `Remote` sends no request."""

    bucket: str
    key: str
    """Key without slashes at its ends. "" is the whole bucket."""

    @classmethod
    def parse(cls, text: str) -> "Remote":
        """Read `s3://bucket/key` or `gs://bucket/key`. ValueError for any other text."""
        parsed = re.fullmatch(r"((?:s3|gs)://[^/]+)(?:/(.*))?", text)
        parts = [part for part in (parsed[2] or "").split("/") if part] if parsed else ["."]
        if parsed is None or {".", ".."} & set(parts):
            raise ValueError("s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
        return cls(parsed[1], "/".join(parts))

    # Names

    def __str__(self) -> str:
        return f"{self.bucket}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> "Remote":
        return Remote(self.bucket, f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> "Remote":
        return Remote(self.bucket, self.key.rpartition("/")[0])

    # Metadata

    def stat(self) -> Stat:
        with self.errors():
            meta = obstore.head(_store(self.bucket), self.key)
        return Stat(meta["size"], meta["last_modified"].timestamp())

    def is_file(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        return next(self.iterdir(), None) is not None

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator["Remote"]:
        with self.errors():
            listed = obstore.list_with_delimiter(_store(self.bucket), self.key)
        keys = {*listed["common_prefixes"], *(meta["path"] for meta in listed["objects"])} - {self.key}
        yield from sorted(Remote(self.bucket, key) for key in keys)

    def glob(self, pattern: str) -> Iterator["Remote"]:
        return (entry for entry in self.iterdir() if fnmatch.fnmatchcase(entry.name, pattern))

    def below(self, after: str = "") -> Iterator[str]:
        """List the names, after a name, of all objects below the key. Skip objects by which some tools mark folders."""
        with self.errors():
            for metas in obstore.list(_store(self.bucket), self.key, offset=f"{self.key}/{after}" if after else None):
                yield from (name for meta in metas if (name := meta["path"][len(self.key) :].lstrip("/")))

    # Reading

    def read_bytes(self) -> bytes:
        with self.errors():
            return bytes(obstore.get(_store(self.bucket), self.key).bytes())

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def chunks(self) -> Iterator[bytes]:
        """Yield the object's bytes in chunks of about 1 MiB, from a single request."""
        with self.errors():
            for chunk in obstore.get(_store(self.bucket), self.key).stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(chunk)

    def open(self, mode: str = "rb") -> BinaryIO:
        """Open the object for reading with seeks. A read fetches only its range of bytes."""
        if mode != "rb":
            raise ValueError(f"{self}: opened with {mode!r}; allowed: 'rb', because objects are written as a whole")
        return cast("BinaryIO", io.BufferedReader(_RangeReader(self, self.stat().st_size), CHUNK_BYTES))

    # Writing

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing, because a bucket has no folders."""

    def write_bytes(self, data: bytes) -> None:
        with self.errors():
            obstore.put(_store(self.bucket), self.key, data)

    def create(self, data: bytes) -> bool:
        """Write the object only if the key is free (put-if-absent). False if another writer's data is there.

        A put that is repeated after a lost answer finds its own data and counts as success. So competing writers must
        write different data.
        """
        try:
            with self.errors():
                obstore.put(_store(self.bucket), self.key, data, mode="create")
        except FileExistsError:
            return self.read_bytes() == data
        return True

    def upload(self, path: Path) -> None:
        with self.errors():
            obstore.put(_store(self.bucket), self.key, path, chunk_size=PART, max_concurrency=UPLOADS)

    def unlink(self, *, missing_ok: bool = False) -> None:
        if not missing_ok:
            self.stat()
        with contextlib.suppress(FileNotFoundError), self.errors():
            obstore.delete(_store(self.bucket), self.key)

    def remove_below(self) -> None:
        if keys := [(self / name).key for name in self.below()]:
            with self.errors():
                obstore.delete(_store(self.bucket), keys)

    def reach(self) -> None:
        """Raise OSError within seconds if the bucket is missing, access is denied, or the store is silent."""
        with self.errors():
            options = {**CLIENT, "timeout": timedelta(seconds=5)}
            store = _open(self.bucket, retry_config=SOON, client_options=options)
            obstore.list_with_delimiter(store, self.key)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Convert a store's errors inside the block to OSError and its subclasses."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, _said(error), str(self)) from None
        except AlreadyExistsError as error:
            raise FileExistsError(errno.EEXIST, _said(error), str(self)) from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise PermissionError(errno.EACCES, _said(error), str(self)) from None
        except BaseError as error:
            raise OSError(errno.EIO, _said(error), str(self)) from None


class _RangeReader(io.RawIOBase):
    """An object as a file with random access. Each read is one request."""

    def __init__(self, remote: Remote, size: int) -> None:
        self._remote, self._size, self._at = remote, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        with (remote := self._remote).errors():
            buffer[:length] = obstore.get_range(_store(remote.bucket), remote.key, start=self._at, length=length)
        self._at += length
        return length


@functools.cache
def _store(bucket: str) -> Any:
    return _open(bucket, client_options=CLIENT)


def _open(bucket: str, **options: Any) -> Any:
    return from_url(bucket, **options)


def _said(error: Exception) -> str:
    text = str(error).partition("\n\nDebug source")[0]
    answer = re.search(r"<Code>(.*?)</Code>\s*<Message>(.*?)</Message>", text, re.DOTALL)
    line = " ".join((f"{answer[1]}: {answer[2]}" if answer else text).split())
    return line if len(line) <= SAID else f"{line[: SAID - 1]}…"
