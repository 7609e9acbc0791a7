"""Resume a step shard by shard: a ledger has an entry for each finished output, written after the output."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rayhier.storage import files
from rayhier.storage.files import File
from rayhier.storage.paths import Location


@dataclass(frozen=True)
class LedgerEntry:
    """A finished output: its files and its counts."""

    files: tuple[File, ...]
    counts: dict[str, Any]


@dataclass(frozen=True)
class Ledger:
    """Entries in a folder of an attempt's scratch; `root` is the folder of the outputs."""

    folder: Location
    root: Location

    def done(self, key: str) -> LedgerEntry | None:
        """Read the entry of an output finished earlier; None where the entry or any file is missing or damaged."""
        try:
            saved = files.read_json(self.folder / f"{key}.json")
            entry = LedgerEntry(tuple(File(**file) for file in saved["files"]), dict(saved["counts"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # missing or damaged: the output is made again
            return None
        return entry if all(self._is_whole(file) for file in entry.files) else None

    def enter(self, key: str, entry: LedgerEntry) -> LedgerEntry:
        """Write the entry of a finished output. Writing it again is harmless: names and bytes are the same."""
        saved = {"files": [file.model_dump() for file in entry.files], "counts": entry.counts}
        files.write_json(self.folder / f"{key}.json", saved)
        return entry

    def agree(self, key: str, settle: Callable[[], str]) -> str:
        """Return the same value in all processes with this ledger: the first `settle()`, kept when a step resumes."""
        path = self.folder / f"{key}.agreed"
        if not path.is_file():
            files.create(path, settle().encode())
        return path.read_text()

    def _is_whole(self, file: File) -> bool:
        try:
            return (self.root / file.name).stat().st_size == file.bytes
        except FileNotFoundError:
            return False
