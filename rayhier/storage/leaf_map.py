"""The leaf map: immutable files of rows and of removed ids, and manifests that list the files of each version.

Each change writes new files, then a new manifest that lists them after the earlier files. Published files never change.
A file of removed ids acts only on rows of earlier versions, so a removed document can be added again.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from rayhier.progress import counted
from rayhier.spec import InputError
from rayhier.spec.corpus import Language
from rayhier.spec.index import VectorFormat
from rayhier.storage import columns, files, parquet
from rayhier.storage.artifact import OLDER, Artifact, check
from rayhier.storage.cache import fetch
from rayhier.storage.files import File, seal, unseal
from rayhier.storage.paths import Location
from rayhier.storage.shard import Removal, Shard, Sidecar

FORMAT = 2
MANIFESTS = "manifests"
LEAVES = "leaves.parquet"
CHANGING = ("data/", "words/", "routers/", "manifests/", "log/")
"""Folders of an index artifact to which later versions add files. Manifests list the files, record.json does not."""
ROLLBACKS = 1_000
"""Number of newest rollbacks whose idempotency keys a manifest keeps."""
REMEMBERED = 8
BUILT = 1
"""Number of the version that a build publishes. Evaluation measures this version, not later changes."""
CARRIED = (
    "rayhier run --carry of 0.2.0 made this version, with another model's vectors. Such versions are not supported; "
    "allowed: rayhier index embed WORKDIR of 0.2.0 first. Or remove WORKDIR/current.json and use rayhier run SPEC, "
    "which builds the index again without later changes of documents"
)
MEND = "Return to a version without this file (rollback), or rebuild the index with --fresh --stage index"

Change = Literal[
    "build", "add", "upsert", "delete", "fold", "maintain", "pack", "compact", "rollback", "carry", "embed", "upgrade"
]
"""Operation that published a version of the leaf map. Only rayhier 0.2.0 publishes `embed`."""


class Revision(BaseModel, frozen=True, extra="forbid"):
    """A router in place of the model's router, with some leaves split or removed."""

    files: list[File]
    origins: list[int]
    """For each leaf, the number of the model's leaf from which the leaf was split, or the leaf's own number."""


class Rollback(BaseModel, frozen=True, extra="forbid"):
    """The outcome of a rollback whose request had an idempotency key."""

    key: str
    restored: int
    model: str
    version: int
    log: int
    documents: int


class Manifest(BaseModel, frozen=True, extra="forbid"):
    """A version of a leaf map: its shards, its files of removed ids, and counts."""

    format: int = FORMAT
    version: int
    parent: int | None
    change: Change = "build"
    at: float = Field(default_factory=lambda: now())
    model: str
    dimension: int
    metric: Literal["inner_product"]
    vectors: VectorFormat
    documents: int
    leaves_per_document: int = 1
    moved: int = 0
    """Number of rows that lie in a next-best leaf because their best leaf was full."""
    counts: list[int]
    shards: list[Shard]
    """Shards of the build or last compaction, each a contiguous range of leaves, then added shards."""
    removed: list[Removal] = []
    log: int = 0
    """Number of the last change of the change log that the files hold."""
    revision: Revision | None = None
    restored: int | None = None
    """Number of the older version whose content a rollback published again."""
    key: str | None = None
    """Idempotency key of the rollback's request."""
    rollbacks: list[Rollback] = []
    """Rollbacks with an idempotency key, of this version and earlier versions, the newest last."""
    language: Annotated[Language, BeforeValidator(lambda named: "none" if named == "other" else named)] = "english"
    """Language for the words of all documents. Older manifests have `other` for `none`."""
    undone: int = 0
    """Number of the last change of the change log that a rollback dropped."""
    undone_in: int = 0
    """Number of the newest version that a rollback published."""
    taken: int = 0
    """Newest version of the previous index whose changes were carried to this index."""

    @property
    def files(self) -> list[File]:
        revised = [] if self.revision is None else self.revision.files
        shards = [file for shard in self.shards for file in shard.files]
        return [*shards, *(removed.file for removed in self.removed), *revised]

    @property
    def router(self) -> str | None:
        """Folder, below the index, of the router that placed the rows. None: the model's router."""
        return None if self.revision is None else self.revision.files[0].name.rpartition("/")[0]

    @property
    def rows(self) -> int:
        return sum(self.counts)

    @property
    def leaves(self) -> int:
        """Number of leaves. If maintenance split or removed leaves, only leaves with rows count."""
        return len(self.counts) if self.revision is None else sum(count > 0 for count in self.counts)

    @property
    def words(self) -> Language | None:
        """Language for words, or None if BM25 cannot be used."""
        return self.language if all(shard.postings is not None for shard in self.shards) else None

    def changed(self, change: Change, **fields: Any) -> "Manifest":
        return self.model_copy(update={"change": change, "at": now(), **fields})


@dataclass(frozen=True)
class LeafMap:
    root: Location
    manifest: Manifest

    @classmethod
    def open(cls, root: Location, version: int | None = None) -> Self:
        """Open a version (None: the newest). InputError if it is missing, damaged or of another format."""
        numbers = versions(root)
        if not numbers or (version is not None and version not in numbers):
            shown = ", ".join(map(str, numbers[-10:])) or "none"
            wanted = "no manifest" if version is None else f"no version {version}; allowed: {shown}"
            raise InputError(f"{root / MANIFESTS}: holds {wanted}")
        return cls(root, _read(_path(root, numbers[-1] if version is None else version)))

    def read(
        self,
        shard: Shard,
        columns: Sequence[str] | None = None,
        without: Sequence[str] = (),
        leaves: range | None = None,
        *,
        verify: bool = True,
    ) -> pa.Table:
        """Read a shard's rows in a range of `leaves` (None: all), sorted by leaf, without removed rows.

        `columns` None: all columns but sidecars. InputError if a file differs from the manifest's entry. Without
        `verify`, only parquet's page checksums are tested.
        """
        sidecars = {name: shard.sidecars[name].file for name in columns or () if name in shard.sidecars}
        if verify:
            for file in (shard.file, *sidecars.values()):
                check(self.root, file, MEND)
        names = self._names(shard)
        chosen = [name for name in (names if columns is None else columns) if name not in without]
        key, removed_ids = key_of(names), self._gone(shard)
        stored = [name for name in chosen if name not in sidecars]
        table = self._read(
            shard, shard.file, [*stored, *([key] if len(removed_ids) and key not in stored else [])], leaves
        )
        for name, file in sidecars.items():
            values = self._read(shard, file, [name], leaves)
            table = table.append_column(values.schema.field(name), values[name])
        if len(removed_ids):
            table = table.filter(pc.invert(pc.is_in(table[key], removed_ids)))
        return table.select(chosen)

    def ids(self, shard: Shard) -> pa.ChunkedArray:
        """Read the ids of a shard's rows as users give them, even of removed rows. The file is not verified."""
        key = self.key(shard)
        return self._read(shard, shard.file, [key])[key]

    def _read(self, shard: Shard, file: File, names: list[str] | None, leaves: range | None = None) -> pa.Table:
        with _named(path := self.root / file.name):
            if leaves is None or names is None:
                return columns.as_bytes(parquet.read(path, names))
            return columns.as_bytes(parquet.read_rows(path, names, *shard.within(leaves)))

    def columns(self, shard: Shard) -> list[str]:
        return [*self._names(shard), *shard.sidecars]

    def key(self, shard: Shard) -> str:
        return key_of(self._names(shard))

    @property
    def size(self) -> str:
        """The number of documents in words, with the number of passages if documents are cut into passages."""
        keys = [(shard, self.key(shard)) for shard in self.manifest.shards if shard.rows]
        cut = [(shard, key) for shard, key in keys if key != "doc_id"]
        chunks = [chunk for shard, key in cut for chunk in self.read(shard, [key], verify=False)[key].chunks]
        return counted(self.manifest.documents, len(pa.chunked_array(chunks).unique()) if chunks else None)

    def postings(self, shard: Shard) -> pa.Table:
        """Read a shard's postings, even of removed rows. InputError if the shard's words were not counted."""
        if shard.postings is None:
            raise InputError(f"{self.root / shard.file.name}: its words were not counted; allowed: search.mode dense")
        check(self.root, shard.postings, MEND)
        return self._read(shard, shard.postings, None)

    def router(self) -> Path | None:
        """Return the local folder of this version's router, checked. None if the version uses the model's router."""
        if self.manifest.revision is None:
            return None
        revised = self.manifest.revision.files
        for file in revised:
            check(self.root, file, MEND)
        root = self.root if isinstance(self.root, Path) else fetch(self.root, revised)
        return root / Path(revised[0].name).parent

    def check_maker(self, sidecar: Sidecar) -> None:
        """Raise InputError if a sidecar was computed by another model than the leaf map's."""
        if sidecar.maker != self.manifest.model:
            raise InputError(
                f"{self.root / sidecar.file.name}: was made by model {sidecar.maker}, not {self.manifest.model}"
            )

    def _names(self, shard: Shard) -> list[str]:
        with _named(path := self.root / shard.file.name):
            return list(parquet.metadata(path).schema.to_arrow_schema().names)

    def void(self, shard: Shard) -> npt.NDArray[np.int64]:
        """Return the positions in a shard, ascending, of the rows that later versions removed."""
        removed_ids = self._gone(shard)
        if not len(removed_ids):
            return np.empty(0, np.int64)
        return np.flatnonzero(pc.is_in(self.ids(shard), removed_ids).to_numpy())

    def removed_ids(self, removals: Sequence[Removal]) -> pa.Array:
        return pa.concat_arrays([ids for removed, ids in self._removed if removed in removals]).unique().sort()

    def _gone(self, shard: Shard) -> pa.Array:
        late = [ids for removed, ids in self._removed if removed.since > shard.since]
        return pa.concat_arrays(late) if late else pa.array([], pa.string())

    @cached_property
    def _removed(self) -> list[tuple[Removal, pa.Array]]:
        removed = []
        for removal in self.manifest.removed:
            check(self.root, removal.file, MEND)
            table = parquet.read(self.root / removal.file.name, ["doc_id"])
            removed.append((removal, table["doc_id"].combine_chunks()))
        return removed


@contextlib.contextmanager
def _named(path: Location) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be read: {message}. {MEND}") from None


def verify(artifact: Artifact) -> None:
    """Check all files of an index artifact's record and newest version. InputError names a file that differs."""
    artifact.verify(without=CHANGING)
    for file in LeafMap.open(artifact.root).manifest.files:
        check(artifact.root, file, MEND)


def check_built(artifact: Artifact) -> None:
    """Raise InputError if a vacuum removed version 1 of an index, which evaluation measures."""
    try:
        LeafMap.open(artifact.root, BUILT)
    except InputError:
        raise InputError(
            f"{artifact.folder}: vacuum removed version {BUILT}, which evaluation measures; allowed: --fresh --stage "
            "index --stage evaluate, which builds the index again without later changes"
        ) from None


def key_of(names: Iterable[str]) -> str:
    """Return the name of the column of ids as users give them: `parent` for passages, else `doc_id`."""
    return "parent" if "parent" in names else "doc_id"


def ranges(counts: Sequence[int], shards: int) -> list[tuple[int, int]]:
    """Divide all leaves into at most `shards` contiguous ranges [first, last) with about equally many rows.

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
    """Publish a version by writing its manifest. Returns False if another writer took the version's number."""
    return files.create(_path(root, manifest.version), seal(manifest.model_dump(mode="json")))


def commit(root: Location, change: Callable[[LeafMap], Manifest]) -> LeafMap:
    """Publish the manifest that `change` makes from the newest version. Repeat if another writer was faster."""
    while True:
        newest = LeafMap.open(root)
        manifest = _after(newest.manifest.version, change(newest))
        _check_there(root, manifest, {file.name for file in newest.manifest.files}, "Run again")
        if publish(root, manifest):
            return LeafMap(root, manifest)


def republish(root: Location, version: int, log: int = 0, key: str | None = None) -> LeafMap:
    """Publish the content of an older version as the newest version (rollback), and open it.

    Changes of the log up to number `log` are dropped. If a rollback already had the request's `key`, the newest version
    is opened instead. InputError if the older version or a file of it is gone.
    """
    while True:
        older, numbers = LeafMap.open(root, version).manifest, versions(root)
        (newest,) = newest_first(root, None, 1) or [older]
        if key is not None and key in {each.key for each in newest.rollbacks}:  # another Writer has done the rollback
            return LeafMap(root, newest)
        manifest = _after(numbers[-1], older.changed("rollback", log=max(log, older.log, newest.log)))
        told = {"model": older.model, "version": manifest.version, "log": manifest.log, "documents": older.documents}
        made = [] if key is None else [Rollback(key=key, restored=version, **told)]
        update = {"restored": version, "key": key, "undone": manifest.log, "undone_in": manifest.version}
        kept = {"taken": newest.taken, "rollbacks": [*newest.rollbacks, *made][-ROLLBACKS:]}
        manifest = manifest.model_copy(update={**update, **kept})
        _check_there(root, manifest, set(), "Take another version")
        if publish(root, manifest):
            return LeafMap(root, manifest)


def _after(version: int, manifest: Manifest) -> Manifest:
    return manifest.model_copy(update={"version": version + 1, "parent": version, "restored": None, "key": None})


def _check_there(root: Location, manifest: Manifest, known: set[str], mend: str) -> None:
    for file in manifest.files:
        if file.name not in known:
            path = root / file.name
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                raise InputError(f"{path}: is missing. Nothing was published. {mend}") from None
            if size != file.bytes:
                raise InputError(f"{path}: {size} bytes, but {file.bytes} were written. Nothing was published. {mend}")


def now() -> float:
    """Return seconds since 1970, to the millisecond."""
    return round(time.time(), 3)


def versions(root: Location) -> list[int]:
    return sorted(int(path.stem[1:]) for path in (root / MANIFESTS).glob("v*.json") if path.stem[1:].isdigit())


def newest_first(root: Location, before: int | None, count: int) -> list[Manifest]:
    """Read the manifests of at most `count` versions before a number, the newest first, without damaged manifests."""
    manifests = list[Manifest]()
    for number in reversed(versions(root)):
        if len(manifests) == count:
            break
        if before is None or number < before:
            with contextlib.suppress(InputError):
                manifests.append(_read(_path(root, number)))
    return manifests


def remove_version(root: Location, version: int) -> None:
    _path(root, version).unlink(missing_ok=True)


def _read(path: Location) -> Manifest:
    if isinstance(path, Path):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            return _parsed_once(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return _parsed(path)


@lru_cache(REMEMBERED)
def _parsed_once(path: Path, *_: int) -> Manifest:
    return _parsed(path)


def _parsed(path: Location) -> Manifest:
    try:
        saved: dict[str, Any] = unseal(path)
    except FileNotFoundError:
        raise InputError(f"{path}: was removed. Open the newest version") from None
    except InputError as error:
        raise InputError(f"{error}. {MEND}") from None
    if saved.get("format") != FORMAT:
        raise InputError(f"{path}: format {saved.get('format')}, not {FORMAT}: {OLDER}")
    if saved.pop("carried", 0):
        raise InputError(f"{path}: {CARRIED}")
    for shard in saved.get("shards", []):
        shard.pop("carried", None)  # False in files of 0.2.0
    try:
        return Manifest.model_validate(saved)
    except ValidationError as error:
        raise InputError(f"{path}: not a manifest: {error.errors(include_url=False)[0]['msg']}") from None


def _path(root: Location, version: int) -> Location:
    return root / MANIFESTS / f"v{version:06d}.json"
