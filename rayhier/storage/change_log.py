"""The change log of an index: changes that are durable before leaf files hold them.

A change is one object, `log/NNNNNNNNNNNN.change` below the index, which begins with the SHA-256 of all that follows: a
line of JSON, then the rows or ids as an Arrow stream. Numbers count on from 1. An object is written only where its name
is free (put-if-absent): of two writers one learns that its number is taken. A version of the leaf map says up to which
number its files hold the log (`Manifest.log`); the changes after it are the version's tail, which searches read too.
Changes that files hold are gathered into one object, `log/FIRST-LAST.changes`, so that few objects stay.
"""

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import pyarrow as pa

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.leaf_map import key_of
from rayhier.storage.paths import Location

LOG = "log"
FORMAT = 1
ONE, MANY = ".change", ".changes"
DIGITS = 12
LENGTH = 8
"""Bytes of an object's length, before each of those that are gathered into one."""

KEPT = 1_000
"""Changes in leaf files that stay in the log, the newest: a Writer that starts reads their idempotency keys again."""
TOLD = ("key", "body", "documents", "replaced", "router")
"""What a change's line of JSON says besides its number and kind."""

Kind = Literal["put", "delete"]


@dataclass(frozen=True)
class Change:
    """A change of the documents of an index: some are written, or some are deleted."""

    number: int
    kind: Kind
    table: pa.Table
    """Rows of the documents written, as leaf files have them; or the ids deleted, as the column `doc_id`."""
    key: str | None = None
    """Idempotency key of the request that made the change; None: it had none."""
    body: str = ""
    """SHA-256 of that request's body: a key belongs to one body."""
    documents: int = 0
    """Number of documents that the change wrote or deleted."""
    replaced: int = 0
    """Number of written documents whose ids were in the index before."""
    router: str | None = None
    """Folder, below the index, of the router that placed the documents written; None: the model's."""

    @property
    def rows(self) -> pa.Table | None:
        """Rows of the documents written; None where documents are deleted."""
        return self.table if self.kind == "put" else None

    @property
    def ids(self) -> pa.Array:
        """Ids of the documents written or deleted, each once: of passages, of the document that they are from."""
        return self.table[key_of(self.table.column_names)].combine_chunks().unique()

    def packed(self) -> bytes:
        """Return the bytes of the change's object."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, self.table.schema, options=options) as stream:
            stream.write_table(self.table)
        about: dict[str, Any] = {"format": FORMAT, "number": self.number, "kind": self.kind}
        about |= {name: getattr(self, name) for name in TOLD}
        content: bytes = json.dumps(about).encode() + b"\n" + sink.getvalue().to_pybytes()
        return hashlib.sha256(content).hexdigest().encode() + b"\n" + content

    @classmethod
    def unpacked(cls, data: bytes, name: str, *, with_table: bool = True) -> Self:
        """Read a change from its object's bytes, else with an empty table; InputError says `name` if they changed."""
        digest, _, content = data.partition(b"\n")
        if hashlib.sha256(content).hexdigest().encode() != digest:
            raise InputError(f"{name}: damaged: its bytes do not match the SHA-256 that it begins with")
        line, _, stream = content.partition(b"\n")
        about: dict[str, Any] = json.loads(line)
        if about["format"] != FORMAT:
            raise InputError(f"{name}: format {about['format']}; allowed: {FORMAT}, that of this version of rayhier")
        table = pa.ipc.open_stream(pa.py_buffer(stream)).read_all() if with_table else pa.table({})
        return cls(about["number"], about["kind"], table, **{name: about[name] for name in TOLD if name in about})


class ChangeLog:
    """The log of the index below `root`."""

    def __init__(self, root: Location) -> None:
        self._folder = root / LOG

    def append(self, change: Change) -> bool:
        """Make a change durable; returns False where its number is taken. OSError where storage refuses it."""
        return files.create(self._folder / _name(change.number), change.packed())

    def last(self, least: int = 0) -> int:
        """Return the number of the newest change; `least` where there is none above."""
        singles, gathered = self._listed()
        return max([least, *singles, *(end for _, end in gathered)])

    def after(self, number: int, last: int | None = None) -> Iterator[Change]:
        """Yield the changes after a number, in their order, up to number `last`; None: all there are.

        InputError names an object that is missing between others, or damaged; what came before it was yielded.
        """
        while last is not None and number < last:  # without listing, which takes longer the more objects there are
            path = self._folder / _name(number + 1)
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                break  # it was gathered
            yield _checked(Change.unpacked(data, str(path)), number + 1, str(path))
            number += 1
        if last is None or number < last:
            for change in self._listed_after(number):
                yield change
                if change.number == last:
                    return  # what comes after may be damaged

    def there(self, number: int = 0, last: int | None = None, *, with_table: bool = True) -> Iterator[Change]:
        """Yield the changes after a number that the log has, up to number `last`, over gaps; else with empty tables.

        A log has a gap where the index was not served for a while: the log of another index has those changes.
        InputError names an object that is damaged.
        """
        singles, gathered = self._listed()
        done = number
        for begin, end in sorted([*gathered, *((single, single) for single in singles)]):
            if end <= done or (last is not None and begin > last):
                continue
            try:
                many = (begin, end) in gathered
                single = self._folder / _name(begin)
                changes = list(self._of_many(begin, end, with_table)) if many else [_one(single, begin, with_table)]
            except FileNotFoundError:  # it was gathered since
                yield from self.there(done, last, with_table=with_table)
                return
            yield from (
                change for change in changes if change.number > done and (last is None or change.number <= last)
            )
            done = end

    def _listed_after(self, number: int, *, again: bool = True) -> Iterator[Change]:
        singles, gathered = self._listed()
        last = max([number, *singles, *(end for _, end in gathered)])
        done = number
        for begin, end in sorted(gathered):
            if end <= done or begin > done + 1:
                continue
            for change in self._of_many(begin, end):
                if change.number == done + 1:
                    yield change
                    done += 1
        while done < last:
            path = self._folder / _name(done + 1)
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                if again:  # it may have been gathered since the log was listed
                    yield from self._listed_after(done, again=False)
                    return
                raise InputError(f"{path}: no such object, but the log goes on to change {last}") from None
            yield _checked(Change.unpacked(data, str(path)), done + 1, str(path))
            done += 1

    def gather(self, first: int, last: int) -> None:
        """Gather the changes `first` to `last` into one object, then remove theirs; does nothing where these are."""
        singles, _ = self._listed()
        paths = [self._folder / _name(number) for number in range(first, last + 1)]
        if not set(range(first, last + 1)) <= set(singles):
            return
        parts = [path.read_bytes() for path in paths]
        whole = b"".join(len(part).to_bytes(LENGTH) + part for part in parts)
        files.create(self._folder / f"{first:0{DIGITS}d}-{last:0{DIGITS}d}{MANY}", whole)
        for path in paths:
            path.unlink(missing_ok=True)

    def tidy(self, last: int) -> None:
        """Gather the single objects of the changes up to `last`, and remove those that are gathered already.

        A writer that died after it published a version, or in the midst of gathering, leaves such objects.
        """
        singles, gathered = self._listed()
        gathered.sort()
        runs = list[list[int]]()
        for number in sorted(singles):
            place = bisect_right(gathered, (number, math.inf)) - 1
            if place >= 0 and number <= gathered[place][1]:
                (self._folder / _name(number)).unlink(missing_ok=True)
            elif number <= last and runs and number == runs[-1][1] + 1:
                runs[-1][1] = number
            elif number <= last:
                runs.append([number, number])
        for first, end in runs:
            self.gather(first, end)

    def forget(self, last: int) -> list[int]:
        """Remove gathered objects whose changes all have numbers up to `last`; returns the bytes of each."""
        sizes = list[int]()
        for begin, end in self._listed()[1]:
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
            change = Change.unpacked(data[place : place + length], str(path), with_table=with_table)
            yield _checked(change, number, str(path))
            place, number = place + length, number + 1
        if number != end + 1:
            raise InputError(f"{path}: damaged: holds changes {begin} to {number - 1}, not to {end}")

    def _listed(self) -> tuple[list[int], list[tuple[int, int]]]:
        """List the numbers of single changes, and the first and last numbers of gathered ones."""
        singles, gathered = list[int](), list[tuple[int, int]]()
        for path in self._folder.glob(f"*{ONE}*"):
            stem, dot, kind = path.name.partition(".")
            first, _, end = stem.partition("-")
            if dot + kind == ONE and stem.isdecimal():
                singles.append(int(stem))
            elif dot + kind == MANY and first.isdecimal() and end.isdecimal():
                gathered.append((int(first), int(end)))
        return singles, gathered


def _name(number: int) -> str:
    return f"{number:0{DIGITS}d}{ONE}"


def _one(path: Location, number: int, with_table: bool) -> Change:
    return _checked(Change.unpacked(path.read_bytes(), str(path), with_table=with_table), number, str(path))


def _checked(change: Change, number: int, name: str) -> Change:
    if change.number != number:
        raise InputError(f"{name}: damaged: holds change {change.number}, not {number}")
    return change
