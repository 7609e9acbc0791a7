"""Describes a file of generated pairs before a stage reads it."""

from dataclasses import dataclass
from pathlib import Path

from rayhier.spec import InputError
from rayhier.storage import paths
from rayhier.storage.source import scan_lines

KEY = "train.generated"
ALLOWED = 'UTF-8, one JSON object per line, {"query": "…", "doc_id": "…"}'


@dataclass(frozen=True)
class PairSource:
    path: Path
    identity: str
    """SHA-256 of the file."""
    lines: int


def describe(file: str) -> PairSource:
    """Find and check the file of pairs. InputError says what is wrong."""
    path = paths.resolve(KEY, file)
    if not path.is_file():
        raise InputError(f"{KEY}: got {file!r}, no such file; allowed: a file in {ALLOWED}")
    identity, _, lines, _ = scan_lines(path)
    if not lines:
        raise InputError(f"{KEY}: {path} is empty; allowed: {ALLOWED}")
    return PairSource(path, identity, lines)
