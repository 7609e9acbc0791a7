"""The change log of an index: changes that are durable before leaf files hold them.

A change is one object, `log/NNNNNNNNNNNN.change` below the index. The object has the SHA-256 of the rest, then a line
of JSON, then the rows or ids as an Arrow stream. Numbers count from 1. A version of the leaf map holds changes up to a
number (`Manifest.log`). Searches also read the later changes, the version's tail. Changes that leaf files hold are
gathered into one object, `log/FIRST-LAST.changes`, so that few objects stay.

Gathering removes single objects, so their names are free again. A suspended Writer may later take such a name. Three
rules keep that Writer's change out of the log (ADR 21 has the proof):

1. Every change up to the end of the newest gathered object is read from gathered objects only.
2. The newest single object and the newest gathered object are never removed.
3. After a put, the Writer lists the log. If a gathered object has another change of the number, the Writer removes its
   new object.
"""

import contextlib
import hashlib
import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import pyarrow as pa

from rayhier.spec import InputError
from rayhier.storage import columns, files
from rayhier.storage.leaf_map import key_of
from rayhier.storage.paths import Location

LOG = "log"
FORMAT = 1
ONE, MANY = ".change", ".changes"
DIGITS = 12
LENGTH = 8
"""Bytes of the length that precedes each change in a gathered object."""

KEPT = 100_000
"""Number of newest changes that stay in the log, with their idempotency keys, after leaf files hold them."""
EPOCH = "writer-"
"""Beginning of the file name of a Writer's lease. Such names sort after the names of changes."""
TOLD = ("key", "body", "documents", "replaced", "router", "epoch")

Kind = Literal["put", "delete"]


@dataclass(frozen=True)
class Change:
    """A change of an index that writes or deletes some documents."""

    number: int
    kind: Kind
    table: pa.Table
    """Rows of the written documents, as leaf files have them. For a deletion: the ids, as the column `doc_id`."""
    key: str | None = None
    body: str = ""
    """SHA-256 of the request's body. An idempotency key belongs to one body."""
    documents: int = 0
    replaced: int = 0
    router: str | None = None
    """Folder, below the index, of the router that placed the documents. None: the model's router."""
    epoch: int = 0

    @property
    def rows(self) -> pa.Table | None:
        return self.table if self.kind == "put" else None

    @property
    def ids(self) -> pa.Array:
        """Ids of the documents written or deleted, each once. For passages, the ids of the passages' documents."""
        return self.table[key_of(self.table.column_names)].combine_chunks().unique()

    def packed(self) -> bytes:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, self.table.schema, options=options) as stream:
            stream.write_table(self.table)
        about: dict[str, Any] = {"format": FORMAT, "number": self.number, "kind": self.kind}
        about |= {name: getattr(self, name) for name in TOLD}
        content: bytes = json.dumps(about).encode() + b"\n" + sink.getvalue().to_pybytes()
        return hashlib.sha256(content).hexdigest().encode() + b"\n" + content

    @classmethod
    def unpacked(cls, data: bytes, name: str, number: int, *, with_table: bool = True) -> Self:
        """Read a change from its object's bytes, optionally with an empty table. InputError if the bytes changed."""
        digest, _, content = data.partition(b"\n")
        if hashlib.sha256(content).hexdigest().encode() != digest:
            raise InputError(f"{name}: damaged: its bytes do not match the SHA-256 that it begins with")
        line, _, stream = content.partition(b"\n")
        about: dict[str, Any] = json.loads(line)
        if about["format"] != FORMAT:
            raise InputError(f"{name}: format {about['format']}; allowed: {FORMAT}, that of this version of rayhier")
        if about["number"] != number:
            raise InputError(f"{name}: damaged: holds change {about['number']}, not {number}")
        table = columns.as_bytes(pa.ipc.open_stream(stream).read_all()) if with_table else pa.table({})
        return cls(about["number"], about["kind"], table, **{name: about[name] for name in TOLD if name in about})


class FencedError(Exception):
    """Another Writer with a later epoch has begun. The attempted change may or may not be in the log."""


class ChangeLog:
    def __init__(self, root: Location) -> None:
        self._folder = root / LOG

    def append(self, change: Change) -> bool:
        """Make a change durable. Returns False if its number is taken.

        Raises:
            FencedError: a Writer with a later epoch than the change's has begun, and removed the earlier lease.
            OSError: storage refused the change. The change may or may not be in the log.
        """
        name, data = _name(change.number), change.packed()
        is_new = files.create(self._folder / name, data)
        later = files.names(self._folder, after=name)
        if is_new and any(each[0].isdigit() for each in later):
            is_new = self._counts(change.number, data)
        if change.epoch and max(map(epoch_of, later), default=0) != change.epoch:
            raise FencedError
        return is_new

    def _counts(self, number: int, data: bytes) -> bool:
        """Return True if the change just put is in the log. If another change has the number, remove the new object."""
        _, gathered = self._listed()
        if number > _end(gathered):
            return True
        there = (made for begin, end in gathered if begin <= number <= end for made in self._of_many(begin, end))
        if any(made.number == number and made.packed() == data for made in there):
            return True  # another Writer has gathered the change already
        (self._folder / _name(number)).unlink(missing_ok=True)
        return False

    def last(self, least: int = 0) -> int:
        singles, gathered = self._listed()
        return max([least, *singles, _end(gathered)])

    def after(self, number: int, last: int | None = None, *, again: bool = True) -> Iterator[Change]:
        """Yield the changes after a number, in order, up to `last` (None: all). InputError if a change is missing."""
        if last is not None:  # read by name, because a list of all objects takes longer
            found, error = self._read(range(number + 1, last + 1))
            if error is None and _end(self._listed()[1]) <= number:
                yield from found
                return
        for change in self.there(number, last):
            if change.number != number + 1 and again:  # a list may miss an object that appears while it is made
                yield from self.after(number, last, again=False)
                return
            if change.number != number + 1:
                path = self._folder / _name(number + 1)
                raise InputError(f"{path}: no such object, but the log goes on to change {self.last()}")
            yield change
            number += 1

    def there(self, number: int = 0, last: int | None = None, *, with_table: bool = True) -> Iterator[Change]:
        """Yield the changes after a number that the log has, up to `last`, past gaps. InputError at a damaged object.

        A log has a gap if another index was served for a while. The log of that index has the missing changes. Without
        `with_table`, tables are empty.
        """
        most = math.inf if last is None else last
        singles, gathered = self._listed()
        for begin, end in sorted(gathered):
            if end > number and begin <= most:
                with contextlib.suppress(FileNotFoundError):  # `forget` may have removed it
                    for change in self._of_many(begin, end, with_table):
                        if number < change.number <= most:
                            yield change
                number = end
        found, error = self._read([each for each in singles if max(number, _end(gathered)) < each <= most], with_table)
        if _end(self._listed()[1]) > _end(gathered):  # gathered meanwhile, so what was read may not count
            yield from self.there(number, last, with_table=with_table)
            return
        yield from found
        if error is not None:
            raise error

    def past(self, number: int) -> int:
        """Return the last number in the next object after change `number`, so that you can skip a damaged object."""
        singles, gathered = self._listed()
        ends = [end for _, end in gathered if end > number]
        return min([*ends, *(each for each in singles if each > max(number, _end(gathered)))], default=sys.maxsize)

    def _read(self, numbers: Iterable[int], with_table: bool = True) -> tuple[list[Change], Exception | None]:
        """Read single objects, in order, until one cannot be read. Returns the changes, and the error if any."""
        found = list[Change]()
        try:
            for number in numbers:
                path = self._folder / _name(number)
                found.append(Change.unpacked(path.read_bytes(), str(path), number, with_table=with_table))
        except (InputError, FileNotFoundError) as error:
            return found, error
        return found, None

    def gather(self, first: int, last: int) -> bool:
        """Gather the objects of changes `first` to `last` into one. False if one is damaged, missing or the newest."""
        singles, gathered = self._listed()
        numbers = range(first, last + 1)
        if _end(gathered) >= first or singles[-1:] <= [last] or not set(numbers) <= set(singles):
            return False
        paths = [self._folder / _name(number) for number in numbers]
        try:
            parts = [path.read_bytes() for path in paths]
            for path, part, number in zip(paths, parts, numbers, strict=True):
                Change.unpacked(part, str(path), number, with_table=False)
        except (FileNotFoundError, InputError):  # another process gathers them, or a damaged one would hide later ones
            return False
        if _end(self._listed()[1]) >= first:  # another process gathered them, so what was read may not count
            return False
        whole = b"".join(len(part).to_bytes(LENGTH) + part for part in parts)
        files.create(self._folder / f"{first:0{DIGITS}d}-{last:0{DIGITS}d}{MANY}", whole)
        for path in paths:
            path.unlink(missing_ok=True)
        return True

    def tidy(self, last: int) -> None:
        """Gather single objects up to `last`. Remove single objects whose numbers are in gathered objects."""
        singles, gathered = self._listed()
        runs = list[list[int]]()
        for number in singles:
            if any(begin <= number <= end for begin, end in gathered):
                (self._folder / _name(number)).unlink(missing_ok=True)
            elif number <= last and number != singles[-1]:
                if runs and number == runs[-1][1] + 1:
                    runs[-1][1] = number
                else:
                    runs.append([number, number])
        for first, end in runs:
            if not self.gather(first, end):
                return

    def forget(self, last: int) -> list[int]:
        """Remove gathered objects with changes up to `last` only, except the newest. Returns the removed sizes."""
        sizes = list[int]()
        for begin, end in sorted(self._listed()[1], key=lambda each: each[1])[:-1]:
            if end <= last:
                path = self._folder / f"{begin:0{DIGITS}d}-{end:0{DIGITS}d}{MANY}"
                sizes.append(path.stat().st_size)
                path.unlink(missing_ok=True)
        return sizes

    def _of_many(self, begin: int, end: int, with_table: bool = True) -> Iterator[Change]:
        path = self._folder / f"{begin:0{DIGITS}d}-{end:0{DIGITS}d}{MANY}"
        data, place, number = path.read_bytes(), 0, begin
        while place < len(data):
            length = int.from_bytes(data[place : place + LENGTH])
            place += LENGTH
            yield Change.unpacked(data[place : place + length], str(path), number, with_table=with_table)
            place, number = place + length, number + 1
        if number != end + 1:
            raise InputError(f"{path}: damaged: holds changes {begin} to {number - 1}, not to {end}")

    def _listed(self) -> tuple[list[int], list[tuple[int, int]]]:
        """List the numbers of single changes, ascending, and the first and last numbers of gathered changes."""
        singles, gathered = list[int](), list[tuple[int, int]]()
        for name in files.names(self._folder):
            stem, dot, kind = name.partition(".")
            first, _, end = stem.partition("-")
            if dot + kind == ONE and stem.isdecimal():
                singles.append(int(stem))
            elif dot + kind == MANY and first.isdecimal() and end.isdecimal():
                gathered.append((int(first), int(end)))
        return singles, gathered


def _name(number: int) -> str:
    return f"{number:0{DIGITS}d}{ONE}"


def _end(gathered: Iterable[tuple[int, int]]) -> int:
    return max((end for _, end in gathered), default=0)


def epoch_of(name: str) -> int:
    number = name.removeprefix(EPOCH).removesuffix(".json")
    return int(number) if name == f"{EPOCH}{number}.json" and number.isdecimal() else 0
