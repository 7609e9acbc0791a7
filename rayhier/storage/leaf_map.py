"""The leaf map: immutable files of rows and of removed ids, and the manifests that say which of them count.

A version is a manifest. Adding documents brings files of new rows, removing them a file of their ids, and a manifest
that lists them beside what was there; nothing that was published changes. What a file removes are rows of versions
before its own, so that a document can be removed and come back.
"""

import contextlib
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.artifact import OLDER, Artifact, check
from rayhier.storage.files import File
from rayhier.storage.paths import Location
from rayhier.storage.seal import seal, unseal

FORMAT = 2
MANIFESTS = "manifests"
LEAVES = "leaves.parquet"
CHANGING = ("data/", "manifests/")
"""Folders of an index artifact in which versions come and go: manifests, not record.json, list what is there."""
BUILT = 1
"""The version a build publishes; evaluation measures it, whatever was changed since."""
MEND = "take a version without it (rollback), or rebuild with --fresh --stage index"

Change = Literal["build", "add", "upsert", "delete", "compact", "rollback"]


class Shard(BaseModel):
    """Rows sorted by leaf in one parquet file; no row group ends inside a leaf's rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: File
    rows: int
    documents: int
    """Rows of rank 0."""
    leaves: list[int]
    """Leaves that have rows here, ascending."""
    offsets: list[int]
    """Row where each of them begins, and the number of rows last."""
    log_prob: float
    """Mean log-probability of the first leaf, over its documents; 0 where it has none."""
    since: int = 1
    """Version whose documents it holds: what later versions remove is removed from it."""

    def within(self, leaves: range) -> tuple[int, int]:
        """Its rows [first, last) that lie in a range of leaves."""
        begin, end = (bisect_left(self.leaves, leaf) for leaf in (leaves.start, leaves.stop))
        return self.offsets[begin], self.offsets[end]


class Removal(BaseModel):
    """Ids, of whole documents, that a version removed."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: File
    ids: int
    rows: int
    """Rows that they made void."""
    since: int

    def acts_on(self, shard: Shard) -> bool:
        """Whether rows of a shard may be void by it: those of versions before its own, so that ids can come back."""
        return self.since > shard.since


class Manifest(BaseModel):
    """One version of a leaf map."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: int = FORMAT
    version: int
    parent: int | None
    """The version it was made from."""
    change: Change = "build"
    at: float = Field(default_factory=lambda: now())
    """When, in seconds since 1970."""
    model: str
    """Fingerprint of the model that routed the documents."""
    dimension: int
    metric: Literal["inner_product"]
    vectors: Literal["float16", "float32"]
    documents: int
    leaves_per_document: int = 1
    """Rows of a document, at most."""
    moved: int = 0
    """Rows that found their leaf full and lie in a next-best one."""
    counts: list[int]
    """Rows of each leaf that count."""
    shards: list[Shard]
    """As the build or the last compaction left them, each a contiguous range of leaves; then what was added since."""
    removed: list[Removal] = []

    @property
    def files(self) -> list[File]:
        """All that it needs."""
        return [shard.file for shard in self.shards] + [removed.file for removed in self.removed]

    @property
    def rows(self) -> int:
        """Rows that count."""
        return sum(self.counts)


@dataclass(frozen=True)
class LeafMap:
    """A leaf map opened at one version."""

    root: Location
    manifest: Manifest

    @classmethod
    def open(cls, root: Location, version: int | None = None) -> Self:
        """A version below `root`, the newest where none is given.

        InputError where there is none, it is damaged, or its format is another one.
        """
        there = versions(root)
        if not there or (version is not None and version not in there):
            shown = ", ".join(map(str, there[-10:])) or "none"
            wanted = "no manifest" if version is None else f"no version {version}; allowed: {shown}"
            raise InputError(f"{root / MANIFESTS}: holds {wanted}")
        return cls(root, _read(root / MANIFESTS / _name(there[-1] if version is None else version)))

    def read(
        self,
        shard: Shard,
        columns: Sequence[str] | None = None,
        without: Sequence[str] = (),
        leaves: range | None = None,
        *,
        verify: bool = True,
    ) -> pa.Table:
        """Rows of one shard that count, sorted by leaf: columns, or all but some; all leaves, or those of a range.

        InputError where the file is not the listed one; unverified, only damage that its pages' checksums tell.
        """
        path = self.root / shard.file.name
        if verify:
            check(self.root, shard.file, MEND)
        names = self._names(shard)
        chosen = [name for name in (names if columns is None else columns) if name not in without]
        key, gone = key_of(names), self._gone(shard)
        wanted = chosen if not len(gone) or key in chosen else [*chosen, key]
        with _named(path):
            if leaves is None:
                table = files.read_table(path, wanted)
            else:
                table = files.read_rows(path, wanted, *shard.within(leaves))
        if len(gone):
            table = table.filter(pc.invert(pc.is_in(table[key], gone)))
        return table.select(chosen)

    def key(self, shard: Shard) -> str:
        """The column of a shard with the ids that users know."""
        return key_of(self._names(shard))

    def _names(self, shard: Shard) -> list[str]:
        path = self.root / shard.file.name
        with _named(path):
            return list(files.read_metadata(path).schema.to_arrow_schema().names)

    def void(self, shard: Shard) -> npt.NDArray[np.int64]:
        """Rows of a shard that later versions removed."""
        gone = self._gone(shard)
        if not len(gone):
            return np.empty(0, np.int64)
        path = self.root / shard.file.name
        key = self.key(shard)
        with _named(path):
            return np.flatnonzero(pc.is_in(files.read_table(path, [key])[key], gone).to_numpy())

    def _gone(self, shard: Shard) -> pa.Array:
        """Ids whose rows in a shard are void."""
        late = [ids for removed, ids in self._removed if removed.acts_on(shard)]
        return pa.concat_arrays(late) if late else pa.array([], pa.string())

    @cached_property
    def _removed(self) -> list[tuple[Removal, pa.Array]]:
        for one in self.manifest.removed:
            check(self.root, one.file, MEND)
        read = (files.read_table(self.root / one.file.name, ["doc_id"]) for one in self.manifest.removed)
        return [(one, table["doc_id"].combine_chunks()) for one, table in zip(self.manifest.removed, read, strict=True)]


@contextlib.contextmanager
def _named(path: Location) -> Iterator[None]:
    """What cannot be read is damaged or gone: InputError, which names it."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be read: {said}; {MEND}") from None


def verify(artifact: Artifact) -> None:
    """Read every file of an index artifact's newest version, and what its record alone lists; InputError by name."""
    artifact.verify(without=CHANGING)
    for file in LeafMap.open(artifact.root).manifest.files:
        check(artifact.root, file, MEND)


def key_of(names: Iterable[str]) -> str:
    """The column with the ids that users know: a passage's parent's, where the corpus is cut into passages."""
    return "parent" if "parent" in names else "doc_id"


def publish(root: Location, manifest: Manifest) -> bool:
    """Commit a version by put-if-absent; False where another writer took its number."""
    path = root / MANIFESTS / _name(manifest.version)
    return files.create(path, seal(manifest.model_dump(mode="json")))


def commit(root: Location, change: Callable[[LeafMap], Manifest]) -> LeafMap:
    """Publish what `change` makes of the newest version, again on the next one where another writer was faster.

    `change` raises InputError where what it wants does not go with the version it is shown; nothing is published then.
    """
    while True:
        newest = LeafMap.open(root)
        made = _after(newest.manifest.version, change(newest))
        _check_there(root, made, {file.name for file in newest.manifest.files}, "run again")
        if publish(root, made):
            return LeafMap(root, made)


def again(root: Location, version: int) -> LeafMap:
    """Publish an older version as the newest; what the newest says does not count, and so may be damaged."""
    while True:
        older, there = LeafMap.open(root, version).manifest, versions(root)
        made = _after(there[-1], older.model_copy(update={"change": "rollback", "at": now()}))
        _check_there(root, made, set(), "take another version")
        if publish(root, made):
            return LeafMap(root, made)


def _after(version: int, made: Manifest) -> Manifest:
    return made.model_copy(update={"version": version + 1, "parent": version})


def _check_there(root: Location, made: Manifest, known: set[str], mend: str) -> None:
    """InputError where a file that a manifest names beside the known ones is gone: then it is not to be published."""
    for file in made.files:
        if file.name not in known:
            path = root / file.name
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                raise InputError(f"{path}: is gone; nothing is published; {mend}") from None
            if size != file.bytes:
                raise InputError(f"{path}: {size} bytes, {file.bytes} were written; nothing is published; {mend}")


def now() -> float:
    """Seconds since 1970, to the millisecond."""
    return round(time.time(), 3)


def versions(root: Location) -> list[int]:
    """Versions that are there, ascending."""
    return sorted(int(path.stem[1:]) for path in (root / MANIFESTS).glob("v*.json") if path.stem[1:].isdigit())


def remove_version(root: Location, version: int) -> None:
    """Take a manifest away; its files stay."""
    (root / MANIFESTS / _name(version)).unlink(missing_ok=True)


def _read(path: Location) -> Manifest:
    try:
        saved: dict[str, Any] = unseal(path)
    except FileNotFoundError:
        raise InputError(f"{path}: was removed; open the newest version") from None
    except InputError as error:
        raise InputError(f"{error}; {MEND}") from None
    if saved.get("format") != FORMAT:
        raise InputError(f"{path}: format {saved.get('format')}, not {FORMAT}: {OLDER}")
    try:
        return Manifest.model_validate(saved)
    except ValidationError as error:
        raise InputError(f"{path}: no manifest: {error.errors(include_url=False)[0]['msg']}") from None


def _name(version: int) -> str:
    return f"v{version:06d}.json"
