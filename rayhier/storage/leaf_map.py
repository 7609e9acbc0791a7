"""The leaf map: immutable files of rows and of removed ids, and manifests that list the files of each version.

A version is a manifest. Adding documents writes files of new rows; removing documents writes a file of their ids. Both
publish a new manifest that lists these files after the earlier ones; published files never change. A file of removed
ids acts only on rows of earlier versions, so that a removed document can be added again.
"""

import base64
import contextlib
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError, WrapValidator

from rayhier.spec import InputError
from rayhier.spec.index import VectorFormat
from rayhier.spec.index_size import IndexSize
from rayhier.storage import files
from rayhier.storage.artifact import OLDER, Artifact, check
from rayhier.storage.cache import fetch
from rayhier.storage.files import File
from rayhier.storage.paths import Location
from rayhier.storage.remote import Remote
from rayhier.storage.schemas import Language
from rayhier.storage.seal import seal, unseal

FORMAT = 2
MANIFESTS = "manifests"
LEAVES = "leaves.parquet"
CHANGING = ("data/", "words/", "routers/", "manifests/", "log/")
"""Folders of an index artifact to which later versions add files; manifests list these files, not record.json."""
FEWEST_PACKED = 1_000
"""Numbers from which on a list of them is packed."""
ROLLBACKS = 1_000
"""Number of the newest rollbacks whose idempotency keys a manifest has."""
REMEMBERED = 8
"""Manifests that stay in memory, the last ones."""
Stamp = tuple[int, int, int, int]
BUILT = 1
"""Number of the version that a build publishes. Evaluation measures this version, not later changes."""
CARRIED = (
    "a map moved its vectors from another model's (rayhier run --carry of 0.2.0), which is removed; allowed: rayhier "
    "index embed WORKDIR of 0.2.0 first; or rayhier run SPEC without WORKDIR/current.json, which builds the index "
    "again and leaves changes of documents behind"
)
MEND = "return to a version without this file (rollback), or rebuild the index with --fresh --stage index"

Change = Literal[
    "build", "add", "upsert", "delete", "fold", "maintain", "pack", "compact", "rollback", "carry", "embed"
]
"""Operation that published a version of the leaf map; only rayhier 0.2.0 publishes `embed`."""


class Sidecar(BaseModel):
    """A parquet file with one more column of a shard's rows, in their order; null in a document's second row."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: File
    maker: str
    """Fingerprint of the model that computed the values."""


def _packed(numbers: list[int]) -> list[int] | str:
    """Return ascending numbers as they are, or, where they are many, the text of their compressed differences."""
    if len(numbers) < FEWEST_PACKED:
        return numbers
    differences = np.diff(np.array(numbers, np.int64), prepend=0).astype("<i4")
    return base64.b64encode(zlib.compress(differences.tobytes(), 1)).decode()


def _unpacked(entry: Any, validate: Callable[[Any], list[int]]) -> list[int]:
    """Return the numbers that `_packed` packed; ValueError where a text is none of these."""
    if not isinstance(entry, str):
        return validate(entry)
    try:
        differences = np.frombuffer(zlib.decompress(base64.b64decode(entry, validate=True)), "<i4")
    except (ValueError, zlib.error) as error:
        raise ValueError(f"numbers: {error}") from None
    numbers: list[int] = np.cumsum(differences, dtype=np.int64).tolist()
    return numbers


Ascending = Annotated[list[int], WrapValidator(_unpacked), PlainSerializer(_packed, when_used="json")]
"""Ascending numbers, which a file has as a text where they are many: a manifest of a hundred shards would else have
megabytes, which are written with each change."""


class Shard(BaseModel):
    """A parquet file of rows sorted by leaf. No row group ends inside a leaf."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: File
    rows: int
    documents: int
    """Number of documents whose row of their first (most probable) leaf is in this file."""
    leaves: Ascending
    """Numbers of the leaves that have rows in this file, ascending."""
    offsets: Ascending
    """Position of the first row of each leaf in `leaves`; the last entry is the number of rows."""
    log_prob: float
    """Mean log-probability of a document's first leaf, over the shard's `documents`; 0 where there are none."""
    since: int = 1
    """Version that added this file. Ids that a later version removes are removed from it; earlier removals do not
    apply."""
    sidecars: dict[str, Sidecar] = {}
    """Name of a further column -> the file that holds it."""
    postings: File | None = None
    """Parquet file of the words in the shard's documents, of the columns `schemas.POSTINGS`; None: not counted."""

    @property
    def files(self) -> list[File]:
        """The file of the shard's rows, then the files of its sidecars and its postings."""
        postings = [] if self.postings is None else [self.postings]
        return [self.file, *(sidecar.file for sidecar in self.sidecars.values()), *postings]

    def within(self, leaves: range) -> tuple[int, int]:
        """Return the positions [first, last) in this file of the rows that lie in a range of leaves."""
        begin, end = (bisect_left(self.leaves, leaf) for leaf in (leaves.start, leaves.stop))
        return self.offsets[begin], self.offsets[end]


class Removal(BaseModel):
    """A parquet file of the ids of documents that a version removed."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: File
    ids: int
    rows: int
    """Number of rows that the removal of these ids took from the leaf map."""
    since: int
    """Number of the version that removed these ids."""

    def acts_on(self, shard: Shard) -> bool:
        """Return True if the ids are removed from a shard: only from older shards, as an id can be added again."""
        return self.since > shard.since


class Revision(BaseModel):
    """A router in place of the model's: some of its leaves were split, or merged into others."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    files: list[File]
    """The router's settings and weights, in one folder."""
    origins: list[int]
    """For each leaf, the leaf of the model from which it was split; of a leaf as the model has it, its own number."""


class Rollback(BaseModel):
    """The outcome of a rollback whose request had an idempotency key."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    key: str
    restored: int
    """Number of the older version whose content was published again."""
    model: str
    version: int
    log: int
    documents: int


class Manifest(BaseModel):
    """A version of a leaf map: its shards, its files of removed ids, and counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: int = FORMAT
    version: int
    parent: int | None
    """Number of the version before this one; None for a build."""
    change: Change = "build"
    at: float = Field(default_factory=lambda: now())
    """Time at which this version was made, in seconds since 1970."""
    model: str
    """Fingerprint of the model that routed the documents."""
    dimension: int
    metric: Literal["inner_product"]
    vectors: VectorFormat
    documents: int
    leaves_per_document: int = 1
    """Most rows of a document, 1 or 2."""
    moved: int = 0
    """Number of rows that lie in a next-best leaf because their best leaf was full."""
    counts: list[int]
    """Number of rows in each leaf, leaf 0 first, without removed rows."""
    shards: list[Shard]
    """Shards of the build or last compaction, each a contiguous range of leaves; then shards of documents added
    since."""
    removed: list[Removal] = []
    """Files of ids that were removed since the build or last compaction."""
    log: int = 0
    """Number of the last change of the change log that the files hold."""
    revision: Revision | None = None
    """The router that placed the rows and routes queries; None: the model's."""
    restored: int | None = None
    """Number of the older version whose content a rollback published again; None: this is no rollback."""
    key: str | None = None
    """Idempotency key of the request that asked for the rollback; None: there was none."""
    rollbacks: list[Rollback] = []
    """Rollbacks with an idempotency key, of this version and those before, the newest last."""
    language: Language = "english"
    """Language of the documents of the build. The words of all documents, later ones too, are counted in it."""
    undone: int = 0
    """Number of the last change of the change log that a rollback, of this version or one before, left behind."""
    undone_in: int = 0
    """Number of the newest version that a rollback published: this version or an earlier version."""
    taken: int = 0
    """Newest version of the previous index whose changes were carried to this index."""

    @property
    def files(self) -> list[File]:
        """All files that this version reads: shards, sidecars, removed ids, and the router where it is revised."""
        revised = [] if self.revision is None else self.revision.files
        shards = [file for shard in self.shards for file in shard.files]
        return [*shards, *(removed.file for removed in self.removed), *revised]

    @property
    def router(self) -> str | None:
        """Folder, below the index, of the router that placed the rows; None: the model's."""
        return None if self.revision is None else self.revision.files[0].name.rpartition("/")[0]

    @property
    def rows(self) -> int:
        """Number of rows in all leaves, without removed rows."""
        return sum(self.counts)

    @property
    def leaves(self) -> int:
        """Number of leaves; where some were split or given up, only those with rows count."""
        return len(self.counts) if self.revision is None else sum(count > 0 for count in self.counts)

    @property
    def words(self) -> Language | None:
        """The language by which the words of all documents are counted; None: BM25 cannot be used."""
        return self.language if all(shard.postings is not None for shard in self.shards) else None

    @property
    def size(self) -> IndexSize:
        """Size of the index, by which searches make their automatic choices."""
        return IndexSize(self.documents, self.rows, self.dimension, self.leaves)


@dataclass(frozen=True)
class LeafMap:
    """A leaf map, opened at one version."""

    root: Location
    manifest: Manifest

    @classmethod
    def open(cls, root: Location, version: int | None = None) -> Self:
        """Open a version of the leaf map below `root`; None: the newest version.

        InputError where there is no such version, or its manifest is damaged or of another format.
        """
        numbers = versions(root)
        if not numbers or (version is not None and version not in numbers):
            shown = ", ".join(map(str, numbers[-10:])) or "none"
            wanted = "no manifest" if version is None else f"no version {version}; allowed: {shown}"
            raise InputError(f"{root / MANIFESTS}: holds {wanted}")
        return cls(root, _read(root / MANIFESTS / _name(numbers[-1] if version is None else version)))

    def read(
        self,
        shard: Shard,
        columns: Sequence[str] | None = None,
        without: Sequence[str] = (),
        leaves: range | None = None,
        *,
        verify: bool = True,
    ) -> pa.Table:
        """Read a shard's rows in a range of `leaves` (None: all leaves), sorted by leaf, without removed rows.

        The table has `columns` except `without`; None means all columns but sidecars. InputError where a file differs
        from the manifest's entry; with `verify` False, only parquet's page checksums are tested.
        """
        if verify:
            named = [shard.sidecars[name].file for name in columns or () if name in shard.sidecars]
            for file in (shard.file, *named):
                check(self.root, file, MEND)
        names = self._names(shard)
        chosen = [name for name in (names if columns is None else columns) if name not in without]
        key, removed_ids = key_of(names), self._gone(shard)
        stored = [name for name in chosen if name not in shard.sidecars]
        table = self._read(
            shard, shard.file, stored if not len(removed_ids) or key in stored else [*stored, key], leaves
        )
        for name in chosen:
            if name in shard.sidecars:
                values = self._read(shard, shard.sidecars[name].file, [name], leaves)
                table = table.append_column(values.schema.field(name), values[name])
        if len(removed_ids):
            table = table.filter(pc.invert(pc.is_in(table[key], removed_ids)))
        return table.select(chosen)

    def ids(self, shard: Shard) -> pa.ChunkedArray:
        """Read the ids of a shard's rows as users give them, those of removed rows too; the file is not verified."""
        key = self.key(shard)
        return self._read(shard, shard.file, [key], None)[key]

    def vectors(self, shard: Shard, first: int, last: int, *, verify: bool = True) -> pa.ChunkedArray:
        """Read the vectors of a shard's rows [first, last), removed ones too.

        InputError where the file differs from the manifest's entry; with `verify` False, only parquet's page checksums
        are tested.
        """
        if verify:
            check(self.root, shard.file, MEND)
        with _named(path := self.root / shard.file.name):
            return files.read_rows(path, ["vector"], first, last)["vector"]

    def _read(self, shard: Shard, file: File, names: list[str], leaves: range | None) -> pa.Table:
        with _named(path := self.root / file.name):
            if leaves is None:
                return files.read_table(path, names)
            return files.read_rows(path, names, *shard.within(leaves))

    def columns(self, shard: Shard) -> list[str]:
        """Return the names of a shard's columns, sidecars last."""
        return [*self._names(shard), *shard.sidecars]

    def key(self, shard: Shard) -> str:
        """Return the name of the shard's column of ids as users give them: `parent` for passages, else `doc_id`."""
        return key_of(self._names(shard))

    def postings(self, shard: Shard) -> pa.Table:
        """Read a shard's postings, those of removed rows too.

        InputError where they were not counted, or the file differs from the manifest's entry.
        """
        if shard.postings is None:
            raise InputError(f"{self.root / shard.file.name}: its words were not counted; allowed: search.mode dense")
        check(self.root, shard.postings, MEND)
        with _named(path := self.root / shard.postings.name):
            return files.read_table(path)

    def router(self) -> Path | None:
        """Return the folder, on this machine, of the router in place of the model's; None where the model's routes.

        From a bucket the folder is fetched first. InputError where a file differs from the manifest's entry.
        """
        if self.manifest.revision is None:
            return None
        revised = self.manifest.revision.files
        for file in revised:
            check(self.root, file, MEND)
        root = self.root if isinstance(self.root, Path) else fetch(self.root, revised)
        return root / Path(revised[0].name).parent

    def check_maker(self, sidecar: Sidecar) -> None:
        """Raise InputError where a sidecar's values were computed by another model than the leaf map's."""
        if sidecar.maker != self.manifest.model:
            raise InputError(
                f"{self.root / sidecar.file.name}: was made by model {sidecar.maker}, not {self.manifest.model}"
            )

    def _names(self, shard: Shard) -> list[str]:
        path = self.root / shard.file.name
        with _named(path):
            return list(files.read_metadata(path).schema.to_arrow_schema().names)

    def void(self, shard: Shard) -> npt.NDArray[np.int64]:
        """Return the positions in a shard, ascending, of the rows that later versions removed."""
        removed_ids = self._gone(shard)
        if not len(removed_ids):
            return np.empty(0, np.int64)
        path = self.root / shard.file.name
        key = self.key(shard)
        with _named(path):
            return np.flatnonzero(pc.is_in(files.read_table(path, [key])[key], removed_ids).to_numpy())

    def removed_ids(self, removals: Sequence[Removal]) -> pa.Array:
        """Read the ids in some files of removed ids, ascending and without duplicates."""
        return pa.concat_arrays([ids for removed, ids in self._removed if removed in removals]).unique().sort()

    def _gone(self, shard: Shard) -> pa.Array:
        """Ids that later versions removed from a shard."""
        late = [ids for removed, ids in self._removed if removed.acts_on(shard)]
        return pa.concat_arrays(late) if late else pa.array([], pa.string())

    @cached_property
    def _removed(self) -> list[tuple[Removal, pa.Array]]:
        for removal in self.manifest.removed:
            check(self.root, removal.file, MEND)
        read = (files.read_table(self.root / removal.file.name, ["doc_id"]) for removal in self.manifest.removed)
        return [
            (removal, table["doc_id"].combine_chunks())
            for removal, table in zip(self.manifest.removed, read, strict=True)
        ]


@contextlib.contextmanager
def _named(path: Location) -> Iterator[None]:
    """Turn read errors inside the block into an InputError that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be read: {message}; {MEND}") from None


def verify(artifact: Artifact) -> None:
    """Read every file that an index artifact's record or newest version lists; InputError names a file that differs."""
    artifact.verify(without=CHANGING)
    for file in LeafMap.open(artifact.root).manifest.files:
        check(artifact.root, file, MEND)


def check_built(artifact: Artifact) -> None:
    """Raise InputError where version 1 of an index, which evaluation measures, was removed by a vacuum."""
    try:
        LeafMap.open(artifact.root, BUILT)
    except InputError:
        raise InputError(
            f"{artifact.folder}: vacuum removed version {BUILT}, the index as it was built, which evaluation measures; "
            "allowed: --fresh --stage index --stage evaluate, which builds it again without the changes since"
        ) from None


def key_of(names: Iterable[str]) -> str:
    """Return the column of ids as users give them, of a shard's columns: `parent` for passages, else `doc_id`."""
    return "parent" if "parent" in names else "doc_id"


def ranges(counts: Sequence[int], shards: int) -> list[tuple[int, int]]:
    """Divide all leaves into at most `shards` contiguous ranges [first, last) with about equally many rows.

    `counts` are the rows of each leaf.

    >>> ranges([5, 1, 1, 1, 4], 2)
    [(0, 2), (2, 5)]
    """
    before = np.concatenate([[0], np.cumsum(counts)])
    shards = min(shards, len(counts))
    cuts = [0]
    for number in range(1, shards):
        target = before[-1] * number / shards
        nearest = int(np.abs(before - target).argmin())
        cuts.append(min(max(nearest, cuts[-1] + 1), len(counts) - (shards - number)))
    return list(zip(cuts, [*cuts[1:], len(counts)], strict=True))


def publish(root: Location, manifest: Manifest) -> bool:
    """Publish a version by writing its manifest; returns False where another writer took the version's number."""
    path = root / MANIFESTS / _name(manifest.version)
    return files.create(path, seal(manifest.model_dump(mode="json")))


def commit(root: Location, change: Callable[[LeafMap], Manifest]) -> LeafMap:
    """Publish the version that `change` makes from the newest version; begin again where another writer was faster.

    `change` raises InputError where the change does not fit the newest version; then nothing is published.
    """
    while True:
        newest = LeafMap.open(root)
        manifest = _after(newest.manifest.version, change(newest))
        _check_there(root, manifest, {file.name for file in newest.manifest.files}, "run again")
        if publish(root, manifest):
            return LeafMap(root, manifest)


def check_kept(what: str, base: Manifest, used: Iterable[File], now: Manifest) -> None:
    """Raise InputError if files that were made of some files of `base` cannot replace these in the newest version.

    They can while the newest version still has these files and every removal of `base`, and its further removals are
    later. A rollback takes removals away, or brings earlier removals back.
    """
    removed = {removal.file.name for removal in base.removed}
    is_earlier = (removal.since <= base.version for removal in now.removed if removal.file.name not in removed)
    if any(is_earlier) or not removed | {file.name for file in used} <= {file.name for file in now.files}:
        raise InputError(
            f"{what}: version {now.version} ({now.change}) no longer has all files of version {base.version}; nothing "
            "was changed; run it again"
        )


def republish(root: Location, version: int, log: int = 0, key: str | None = None) -> LeafMap:
    """Publish the content of an older version as the newest version (rollback), and open it.

    Changes of the log up to number `log` are left behind. If a rollback already had the request's `key`, nothing is
    published, and the newest version is opened. InputError if the older version or a file of
    it is gone.
    """
    while True:
        older, numbers = LeafMap.open(root, version).manifest, versions(root)
        (newest,) = newest_first(root, None, 1) or [older]
        if key is not None and key in {each.key for each in newest.rollbacks}:  # another Writer has done it
            return LeafMap(root, newest)
        update = {"change": "rollback", "at": now(), "log": max(log, older.log, newest.log)}
        manifest = _after(numbers[-1], older.model_copy(update=update))
        told = {"model": older.model, "version": manifest.version, "log": manifest.log, "documents": older.documents}
        made = [] if key is None else [Rollback(key=key, restored=version, **told)]
        update = {"restored": version, "key": key, "undone": manifest.log, "undone_in": manifest.version}
        update |= {"taken": newest.taken, "rollbacks": [*newest.rollbacks, *made][-ROLLBACKS:]}
        manifest = manifest.model_copy(update=update)
        _check_there(root, manifest, set(), "take another version")
        if publish(root, manifest):
            return LeafMap(root, manifest)


def _after(version: int, manifest: Manifest) -> Manifest:
    return manifest.model_copy(update={"version": version + 1, "parent": version, "restored": None, "key": None})


def _check_there(root: Location, manifest: Manifest, known: set[str], mend: str) -> None:
    """InputError where a file of a manifest, other than the known ones, is missing or has another size."""
    for file in manifest.files:
        if file.name not in known:
            path = root / file.name
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                raise InputError(f"{path}: is missing; nothing was published; {mend}") from None
            if size != file.bytes:
                raise InputError(f"{path}: {size} bytes, but {file.bytes} were written; nothing was published; {mend}")


def now() -> float:
    """Return the current time in seconds since 1970, to the millisecond."""
    return round(time.time(), 3)


def versions(root: Location) -> list[int]:
    """List the numbers of the versions below `root` whose manifest is there, ascending."""
    return sorted(int(path.stem[1:]) for path in (root / MANIFESTS).glob("v*.json") if path.stem[1:].isdigit())


def newest_first(root: Location, before: int | None, count: int) -> list[Manifest]:
    """Read the manifests of at most `count` versions, the newest first; only of those before a number.

    Manifests that are damaged, or gone by now, are left out.
    """
    manifests = list[Manifest]()
    for number in reversed(versions(root)):
        if len(manifests) == count:
            break
        if before is None or number < before:
            with contextlib.suppress(InputError):
                manifests.append(_read(root / MANIFESTS / _name(number)))
    return manifests


def remove_version(root: Location, version: int) -> None:
    """Remove the manifest of a version, not the files that it lists; nothing where it is gone."""
    (root / MANIFESTS / _name(version)).unlink(missing_ok=True)


def _stamp(path: Location) -> Stamp | None:
    """Return a local file's inode, size and times, by which a change is noticed; None where it is missing."""
    if isinstance(path, Remote):
        return None
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return None


def _read(path: Location) -> Manifest:
    stamp = _stamp(path)
    return _parsed(path) if stamp is None else _parsed_once(path, stamp)


@lru_cache(REMEMBERED)
def _parsed_once(path: Location, _: Stamp) -> Manifest:
    """Read a manifest, unless the same file was read lately: large indexes' are long, and a change reads them often."""
    return _parsed(path)


def _parsed(path: Location) -> Manifest:
    try:
        saved: dict[str, Any] = unseal(path)
    except FileNotFoundError:
        raise InputError(f"{path}: was removed; open the newest version") from None
    except InputError as error:
        raise InputError(f"{error}; {MEND}") from None
    if saved.get("format") != FORMAT:
        raise InputError(f"{path}: format {saved.get('format')}, not {FORMAT}: {OLDER}")
    if saved.pop("carried", 0):
        raise InputError(f"{path}: {CARRIED}")
    for shard in saved.get("shards", []):
        shard.pop("carried", None)  # False: 0.2.0 wrote it
    try:
        return Manifest.model_validate(saved)
    except ValidationError as error:
        raise InputError(f"{path}: not a manifest: {error.errors(include_url=False)[0]['msg']}") from None


def _name(version: int) -> str:
    return f"v{version:06d}.json"
