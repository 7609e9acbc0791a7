"""Locations in a bucket: the part of pathlib's interface that artifacts need, over `s3://` and `gs://`.

A bucket has no folders: what lies below a prefix is there, and nothing else has to be made or removed.
Endpoint, region and credentials are the environment's (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …;
GOOGLE_APPLICATION_CREDENTIALS), or the machine's own role. Every failure of a store is an OSError.
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

CHUNK = 1 << 20
PART = 16 << 20
"""Bytes of one part of an upload; a store takes ten thousand of them."""
UPLOADS = 4
"""Parts in flight, and so in memory, at once."""
CLIENT: dict[str, Any] = {
    "allow_http": True,  # stores' own endpoints are https: http is spoken only where the user's endpoint says so
    "timeout": timedelta(minutes=15),
    "read_timeout": timedelta(seconds=60),
}
SOON: dict[str, Any] = {"max_retries": 1, "retry_timeout": timedelta(seconds=5)}
SAID = 300


@dataclass(frozen=True)
class Stat:
    """Size in bytes and when it was written, in seconds since 1970, by the store's clock."""

    st_size: int
    st_mtime: float


@dataclass(frozen=True, order=True)
class Remote:
    """An object, or all objects below a prefix; the same to the store until asked."""

    bucket: str
    """With its scheme: `s3://name`."""
    key: str
    """Without slashes at its ends; "" is the whole bucket."""

    @classmethod
    def parse(cls, text: str) -> "Remote":
        """`s3://bucket/key` or `gs://bucket/key`; ValueError says what is allowed where it is neither."""
        found = re.fullmatch(r"((?:s3|gs)://[^/]+)(?:/(.*))?", text)
        parts = [part for part in (found[2] or "").split("/") if part] if found else ["."]
        if found is None or {".", ".."} & set(parts):
            raise ValueError("s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
        return cls(found[1], "/".join(parts))

    # Names

    def __str__(self) -> str:
        return f"{self.bucket}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> "Remote":
        return Remote(self.bucket, f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        """The last part of the key."""
        return PurePosixPath(self.key).name

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        """The name's ending, its dot included."""
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> "Remote":
        """Of the bucket itself, the bucket."""
        return Remote(self.bucket, self.key.rpartition("/")[0])

    # What is there

    def stat(self) -> Stat:
        """Of an object; FileNotFoundError where there is none."""
        with self._errors():
            meta = obstore.head(_store(self.bucket), self.key)
        return Stat(meta["size"], meta["last_modified"].timestamp())

    def is_file(self) -> bool:
        """Whether there is an object of this very key."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether anything lies below."""
        return next(self.iterdir(), None) is not None

    def exists(self) -> bool:
        """As an object, or as the prefix of one."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator["Remote"]:
        """Objects and prefixes one level below, by name."""
        with self._errors():
            found = obstore.list_with_delimiter(_store(self.bucket), self.key)
        keys = {*found["common_prefixes"], *(meta["path"] for meta in found["objects"])} - {self.key}
        yield from sorted(Remote(self.bucket, key) for key in keys)

    def glob(self, pattern: str) -> Iterator["Remote"]:
        """What one level below matches by name; `pattern` has no slash."""
        return (found for found in self.iterdir() if fnmatch.fnmatchcase(found.name, pattern))

    def below(self) -> Iterator[str]:
        """Names, from here on, of every object below, at any depth."""
        for key in self._keys():
            yield key[len(self.key) :].lstrip("/")

    # Reading

    def read_bytes(self) -> bytes:
        """The whole object; FileNotFoundError where there is none."""
        with self._errors():
            return bytes(obstore.get(_store(self.bucket), self.key).bytes())

    def read_text(self) -> str:
        """The whole object as UTF-8."""
        return self.read_bytes().decode()

    def chunks(self) -> Iterator[bytes]:
        """The object's bytes in one request, a few at a time."""
        with self._errors():
            for chunk in obstore.get(_store(self.bucket), self.key).stream(min_chunk_size=CHUNK):
                yield bytes(chunk)

    def open(self, mode: str = "rb") -> BinaryIO:
        """For reading with seeks; only what is asked for is fetched."""
        if mode != "rb":
            raise ValueError(f"{self}: opened with {mode!r}; allowed: 'rb', an object is written whole")
        return cast("BinaryIO", io.BufferedReader(_Reader(self, self.stat().st_size), CHUNK))

    def read_range(self, begin: int, length: int) -> bytes:
        """Some of the object's bytes."""
        with self._errors():
            return bytes(obstore.get_range(_store(self.bucket), self.key, start=begin, length=length))

    # Writing

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a prefix is there as soon as something lies below it."""

    def write_bytes(self, data: bytes) -> None:
        """Put an object, over whatever is there, in one step."""
        with self._errors():
            obstore.put(_store(self.bucket), self.key, data)

    def create(self, data: bytes) -> bool:
        """Put-if-absent; False where another writer's data is there.

        A put that was sent again after a broken answer finds its own data: that is success. So racing
        writers must not write the same.
        """
        try:
            with self._errors():
                obstore.put(_store(self.bucket), self.key, data, mode="create")
        except FileExistsError:
            return self.read_bytes() == data
        return True

    def upload(self, path: Path) -> None:
        """Put a local file, over whatever is there; visible once all of it is."""
        with self._errors():
            obstore.put(_store(self.bucket), self.key, path, chunk_size=PART, max_concurrency=UPLOADS)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove an object."""
        if not missing_ok:
            self.stat()
        with contextlib.suppress(FileNotFoundError), self._errors():
            obstore.delete(_store(self.bucket), self.key)

    def remove_below(self) -> None:
        """Remove every object below."""
        keys = list(self._keys())
        with self._errors():
            if keys:
                obstore.delete(_store(self.bucket), keys)

    def reach(self) -> None:
        """OSError within seconds where the bucket is missing, closed to us, or nobody answers."""
        with self._errors():
            store = _open(self.bucket, retry_config=SOON, client_options={**CLIENT, "timeout": timedelta(seconds=5)})
            obstore.list_with_delimiter(store, self.key)

    def _keys(self) -> Iterator[str]:
        """All but the empty object some tools put where they see a folder, whose key says no more than the prefix."""
        with self._errors():
            for metas in obstore.list(_store(self.bucket), self.key):
                yield from (meta["path"] for meta in metas if meta["path"] != self.key)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """A store's errors as the file system's."""
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


class _Reader(io.RawIOBase):
    """An object as a file that can be read anywhere: one request a read."""

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
        buffer[:length] = self._remote.read_range(self._at, length)
        self._at += length
        return length


@functools.cache
def _store(bucket: str) -> Any:
    return _open(bucket, client_options=CLIENT)


def _open(bucket: str, **options: Any) -> Any:
    return from_url(bucket, **options)


def _said(error: Exception) -> str:
    """What the store said, in one line."""
    text = str(error).partition("\n\nDebug source")[0]
    answer = re.search(r"<Code>(.*?)</Code>\s*<Message>(.*?)</Message>", text, re.DOTALL)
    line = " ".join((f"{answer[1]}: {answer[2]}" if answer else text).split())
    return line if len(line) <= SAID else f"{line[: SAID - 1]}…"
