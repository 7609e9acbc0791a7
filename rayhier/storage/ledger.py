"""Resuming a step shard by shard: one entry for each finished output, written after it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayhier.storage import files
from rayhier.storage.files import File


@dataclass(frozen=True)
class Entry:
    """One finished output: its files, and what was counted while making it."""

    files: tuple[File, ...]
    counts: dict[str, Any]


@dataclass(frozen=True)
class Ledger:
    """Entries below a folder of an attempt's scratch; `root` is where the outputs lie."""

    folder: Path
    root: Path

    def done(self, key: str) -> Entry | None:
        """The entry of an output finished earlier, None where it is missing or its files are not all there."""
        try:
            saved = files.read_json(self.folder / f"{key}.json")
        except FileNotFoundError:
            return None
        entry = Entry(tuple(File(**file) for file in saved["files"]), saved["counts"])
        for file in entry.files:
            path = self.root / file.name
            if not path.is_file() or path.stat().st_size != file.bytes:
                return None
        return entry

    def enter(self, key: str, entry: Entry) -> Entry:
        """Note an output as finished. Entering it again is harmless: names and bytes are the same."""
        saved = {"files": [file.model_dump() for file in entry.files], "counts": entry.counts}
        files.write_json(self.folder / f"{key}.json", saved)
        return entry
