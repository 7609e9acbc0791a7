"""The leaf map: documents in parquet shards sorted by leaf, and the manifests that say which files count."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.artifact import check
from rayhier.storage.files import File
from rayhier.storage.paths import Location

FORMAT = 1
MANIFESTS = "manifests"
LEAVES = "leaves.parquet"


class Shard(BaseModel):
    """A contiguous range of leaves in one parquet file; no row group ends inside a leaf's rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: File
    rows: int
    first_leaf: int
    offsets: list[int]
    """Row where each leaf begins, and the number of rows last: leaves + 1 numbers."""


class Manifest(BaseModel):
    """One version of a leaf map."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: int = FORMAT
    version: int
    parent: int | None
    model: str
    """Fingerprint of the model that routed the documents."""
    dimension: int
    metric: Literal["inner_product"]
    vectors: Literal["float16", "float32"]
    documents: int
    leaves_per_document: int = 1
    """Rows of a document, at most."""
    counts: list[int]
    """Rows of each leaf."""
    shards: list[Shard]


@dataclass(frozen=True)
class LeafMap:
    """A leaf map opened at one version."""

    root: Location
    manifest: Manifest

    @classmethod
    def open(cls, root: Location, version: int | None = None) -> Self:
        """A version below `root`, the newest where none is given; InputError where there is none or it is too new."""
        wanted = "v*.json" if version is None else _name(version)
        found: list[Location] = sorted((root / MANIFESTS).glob(wanted), key=str)
        if not found:
            raise InputError(f"{root / MANIFESTS}: holds no manifest{'' if version is None else f' {wanted}'}")
        try:
            saved = files.read_json(found[-1])
            if isinstance(saved, dict) and saved.get("format", FORMAT) != FORMAT:
                raise InputError(f"{found[-1]}: format {saved['format']}; this version reads {FORMAT}")
            return cls(root, Manifest.model_validate(saved))
        except ValidationError as error:
            raise InputError(f"{found[-1]}: no manifest: {error.errors(include_url=False)[0]['msg']}") from None
        except json.JSONDecodeError as error:
            raise InputError(f"{found[-1]}: not JSON: {error}") from None

    def read(self, shard: Shard, columns: Sequence[str] | None = None, without: Sequence[str] = ()) -> pa.Table:
        """Columns of one shard, or all but some, sorted by leaf; InputError where the file is not the listed one."""
        path = self.root / shard.file.name
        check(self.root, shard.file, "rebuild it with --fresh --stage index")
        chosen = files.read_metadata(path).schema.to_arrow_schema().names if columns is None else columns
        return files.read_table(path, [name for name in chosen if name not in without])


def publish(root: Location, manifest: Manifest) -> bool:
    """Commit a version by put-if-absent; False where another writer took its number."""
    path = root / MANIFESTS / _name(manifest.version)
    return files.create(path, files.to_json(manifest.model_dump(mode="json")))


def _name(version: int) -> str:
    return f"v{version:06d}.json"
