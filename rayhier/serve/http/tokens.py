"""Tokens that requests carry: one allows reading, another allows reading and writing. A token is in a file of one line.

Each file is read again every second, so that you can replace a token without a restart. If a file vanishes or holds no
token, its last token stays valid, and the log says so once. The same happens if both files come to hold the same
token. When the server starts, each of these cases is an error.
"""

import hmac
import logging
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rayhier.serve.errors import ApiError
from rayhier.spec import InputError

SHORT = 16
"""Number of characters below which a token is too short to be safe."""
AGAIN_SECONDS = 1.0
SAME = "write_token_file: holds the same token as token_file; allowed: two different tokens"
log = logging.getLogger("ray.serve")


class Tokens:
    """The access tokens of a server, read from files. Without a file, requests need no token."""

    def __init__(self, read_file: str | None, write_file: str | None = None) -> None:
        """Read the token for reading and the token for everything. InputError if one is missing, or both are equal."""
        named = {"token_file": read_file, "write_token_file": write_file}
        self._files = {name: file for name, file in named.items() if file is not None}
        self._tokens = {name: read_token(file, name).encode() for name, file in self._files.items()}
        if _same(self._tokens):
            raise InputError(SAME)
        for name, file in self._files.items():
            if Path(file).stat().st_mode & 0o004:
                _warn(f"{name}: every user of this machine can read {file}. Advised: chmod 600")
            if len(self._tokens[name]) < SHORT:
                _warn(f"{name}: the token of {file} has fewer than {SHORT} characters. Advised: a random one of 32")
        self._failed, self._looked = dict[str, str](), time.monotonic()

    @property
    def required(self) -> bool:
        return bool(self._files)

    def check(self, authorization: bytes, *, writes: bool) -> None:
        """Raise ApiError 401 unless `authorization` (the header) carries a token, 403 if the token may not write."""
        if not self.required:
            return
        self._look()
        scheme, _, token = authorization.partition(b" ")
        # Compared in constant time, so that an answer's delay does not tell how much of a token was right.
        is_read, is_write = (
            name in self._tokens and hmac.compare_digest(token.strip(), self._tokens[name])
            for name in ("token_file", "write_token_file")
        )
        if scheme.lower() != b"bearer" or not (is_read or is_write):
            message = "Authorization: missing or wrong token; allowed: Bearer and the token of this server"
            raise ApiError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})
        if writes and not is_write:
            allowed = "the server's write token"
            if "write_token_file" not in self._tokens:
                allowed = "a server that was started with a write_token_file"
            raise ApiError(403, "forbidden", f"Authorization: this token only reads; allowed: {allowed}")

    def _look(self) -> None:
        """Read the files again, at most once per second. If reading fails, a file's last token stays."""
        if time.monotonic() - self._looked < AGAIN_SECONDS:
            return
        self._looked = time.monotonic()
        tokens, failed = dict(self._tokens), dict[str, str]()
        for name, file in self._files.items():
            try:
                tokens[name] = read_token(file, name).encode()
            except InputError as error:
                failed[name] = str(error)
        if _same(tokens):
            last = [name for name, token in tokens.items() if token != self._tokens[name]][-1]
            tokens[last], failed[last] = self._tokens[last], SAME
        for name in self._files:
            if name in failed and failed[name] != self._failed.get(name):
                log.warning("the token of %s was not replaced: %s", name, failed[name])
            if tokens[name] != self._tokens[name]:
                log.warning("the token of %s was replaced", name)
        self._tokens, self._failed = tokens, failed


@cache
def _warn(message: str) -> None:
    log.warning("%s", message)


def _same(tokens: Mapping[str, bytes]) -> bool:
    return len(set(tokens.values())) < len(tokens)


def read_token(path: str, name: str = "token_file") -> str:
    """Read the token from a file. InputError if the file holds none. The message never quotes the file."""
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
