"""Lets a stage resume after its last finished output. A ledger keeps an entry for each finished output."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rayhier.storage import files
from rayhier.storage.files import File
from rayhier.storage.paths import Location


@dataclass(frozen=True)
class LedgerEntry:
    files: tuple[File, ...]
    counts: dict[str, Any]


@dataclass(frozen=True)
class Ledger:
    """Entries for finished outputs of a stage: JSON files in `folder`. The outputs lie below `root`."""

    folder: Location
    root: Location

    def done(self, key: str) -> LedgerEntry | None:
        """Read the entry of the output `key`. None if the entry or a file of the output is missing or damaged."""
        try:
            saved = files.read_json(self.folder / f"{key}.json")
            entry = LedgerEntry(tuple(File(**file) for file in saved["files"]), dict(saved["counts"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # missing or damaged: the output is made again
            return None
        return entry if all(self._is_whole(file) for file in entry.files) else None

    def enter(self, key: str, entry: LedgerEntry) -> LedgerEntry:
        saved = {"files": [file.model_dump() for file in entry.files], "counts": entry.counts}
        files.write_json(self.folder / f"{key}.json", saved)
        return entry

    def agree(self, key: str, settle: Callable[[], str]) -> str:
        """Return the same text to all processes and resumed runs. The first process computes the text by `settle`."""
        path = self.folder / f"{key}.agreed"
        if not path.is_file():
            files.create(path, settle().encode())
        return path.read_text()

    def _is_whole(self, file: File) -> bool:
        try:
            return (self.root / file.name).stat().st_size == file.bytes
        except FileNotFoundError:
            return False
