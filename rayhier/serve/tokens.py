"""Tokens that requests carry: one opens reading, another reading and writing. Each lies in a file of one line.

The files are read again when they change, so that a token is replaced without a restart. A file that vanishes or holds
no token while the server runs leaves its token as it was, and the log says so; at the start it is an error.
"""

import hmac
import logging
import time
from pathlib import Path

from rayhier.serve.errors import ApiError
from rayhier.spec import InputError

AGAIN_SECONDS = 1.0
"""How often the files are looked at, at most."""
log = logging.getLogger("ray.serve")


class Tokens:
    """The tokens of a server; without a file, nothing needs one. InputError where a file holds none."""

    def __init__(self, read_file: str | None, write_file: str | None = None) -> None:
        """Read the files. Without `write_file` nobody may write; without `read_file` its token opens everything."""
        self._files = read_file, write_file
        self._stamps, self._looked = self._stamped(), time.monotonic()
        self._read, self._write = self._both()

    @property
    def required(self) -> bool:
        """Whether requests need a token."""
        return self._files != (None, None)

    def check(self, authorization: bytes, *, writes: bool) -> None:
        """ApiError 401 unless the header `Authorization` carries a token, 403 where that token may not write."""
        if not self.required:
            return
        self._look()
        scheme, _, given = authorization.partition(b" ")
        # Compared in constant time, so that an answer's delay does not tell how much of a token was right.
        is_read, is_write = (
            token is not None and hmac.compare_digest(given.strip(), token) for token in (self._read, self._write)
        )
        if scheme.lower() != b"bearer" or not (is_read or is_write):
            said = "Authorization: missing or wrong token; allowed: Bearer and the token of this server"
            raise ApiError(401, "unauthorized", said, {"WWW-Authenticate": "Bearer"})
        if writes and not is_write:
            raise ApiError(403, "forbidden", "Authorization: this token only reads; allowed: the server's write token")

    def _look(self) -> None:
        """Read the files again where they changed."""
        if time.monotonic() - self._looked < AGAIN_SECONDS:
            return
        stamps, self._looked = self._stamped(), time.monotonic()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._read, self._write = self._both()
        except InputError as error:
            log.warning("tokens stay as they were: %s", error)
        else:
            log.warning("tokens were read again")

    def _stamped(self) -> list[tuple[int, int, int] | None]:
        return [None if file is None else _stamp(Path(file)) for file in self._files]

    def _both(self) -> tuple[bytes | None, bytes | None]:
        read, write = (
            None if file is None else read_token(file, name).encode()
            for file, name in zip(self._files, ("token_file", "write_token_file"), strict=True)
        )
        if read is not None and read == write:
            raise InputError("write_token_file: holds the same token as token_file; allowed: two different tokens")
        return read, write


def read_token(path: str, name: str = "token_file") -> str:
    """Read the token from a file; InputError where it holds none. Its message never quotes the file."""
    if not Path(path).is_absolute():
        raise InputError(f"{name}: got {path!r}; allowed: an absolute path")
    try:
        token = Path(path).read_bytes().decode("ascii").strip()
    except OSError as error:
        raise InputError(f"{name}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{name}: {path} holds no token; allowed: one line of ASCII characters") from None
    if not token:
        raise InputError(f"{name}: {path} is empty; allowed: one line, the token")
    if not token.isprintable() or " " in token:
        raise InputError(f"{name}: {path} holds more than a token; allowed: one line without spaces")
    return token


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None where there is none."""
    try:
        said = path.stat()
    except OSError:
        return None
    return said.st_mtime_ns, said.st_size, said.st_ino
