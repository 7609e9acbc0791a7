"""Published artifacts: `WORKDIR/KIND/FP/`, where record.json is all that a reader trusts."""

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.cache import fetch
from rayhier.storage.files import File
from rayhier.storage.paths import Location
from rayhier.storage.seal import unseal

Kind = Literal["corpus", "vectors", "model", "index", "evaluate"]
FORMAT = 2
OLDER = "was written by another version of rayhier; build it anew in another workdir, or remove this one"
RECORD = "record.json"
LIBRARIES = ("rayhier", "torch", "transformers", "ray", "pyarrow")


class Record(BaseModel):
    """record.json: what was published, from what, with what."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Kind
    format: int = FORMAT
    fingerprint: str
    attempt: str
    """Folder of the files, beside record.json."""
    inputs: dict[str, str]
    """Kind -> fingerprint of the artifacts read."""
    files: list[File]
    counts: dict[str, Any]
    versions: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class Place:
    """Where an artifact lives, published or not."""

    folder: Location

    @property
    def kind(self) -> str:
        """The kind, as the folder above names it."""
        return self.folder.parent.name

    def published(self) -> "Artifact | None":
        """The artifact, or None while there is no record.json."""
        path = self.folder / RECORD
        try:
            saved = unseal(path)
        except FileNotFoundError:
            return None
        except InputError as error:
            raise InputError(f"{error}; {self._mend()}") from None
        if isinstance(saved, dict) and saved.get("format", FORMAT) != FORMAT:
            raise InputError(f"{path}: format {saved['format']}, not {FORMAT}: {OLDER}")
        try:
            return Artifact(self.folder, Record.model_validate(saved))
        except ValidationError as error:
            raise InputError(f"{path}: not a record of format {FORMAT}: {_first(error)}; {self._mend()}") from None

    def _mend(self) -> str:
        return f"remove it with --fresh --stage {stage_of(self.kind)}"

    def remove(self) -> None:
        """Unpublish, record.json first, then every attempt."""
        (self.folder / RECORD).unlink(missing_ok=True)
        files.remove(self.folder)


@dataclass(frozen=True)
class Artifact:
    """A published artifact: its record, and its files below `root`."""

    folder: Location
    record: Record

    @classmethod
    def open(cls, folder: Location) -> Self:
        """The artifact published at `folder`; InputError where there is none."""
        found = Place(folder).published()
        if found is None:
            raise InputError(f"{folder}: nothing is published there")
        return cls(found.folder, found.record)

    @property
    def root(self) -> Location:
        """Folder of the files."""
        return self.folder / self.record.attempt

    def names(self, prefix: str) -> list[str]:
        """Names of the files below a folder of the artifact, sorted."""
        return sorted(file.name for file in self.record.files if file.name.startswith(prefix))

    def path(self, name: str) -> Location:
        """Where one file lies."""
        return self.root / name

    def local(self, prefix: str) -> Path:
        """The same for libraries that read paths: a folder of the artifact on this machine, fetched where it is not."""
        if isinstance(self.root, Path):
            return self.root / prefix
        return fetch(self.root, [file for file in self.record.files if file.name.startswith(f"{prefix}/")]) / prefix

    def verify(self, without: tuple[str, ...] = ()) -> None:
        """Read every file, but those below some folders; InputError by name where one is not what record.json lists."""
        for file in self.record.files:
            if not file.name.startswith(without):
                check(self.root, file, f"remove it with --fresh --stage {stage_of(self.record.kind)}")


def check(root: Location, file: File, mend: str) -> None:
    """InputError where `root/file.name` is not the listed file; `mend` says what to do."""
    path = root / file.name
    if not path.is_file():
        raise InputError(f"{path}: published, missing on storage; {mend}")
    size = path.stat().st_size
    if size != file.bytes:
        raise InputError(f"{path}: {size} bytes, {file.bytes} were published; {mend}")
    found = files.digest(path)
    if found != file.sha256:
        raise InputError(f"{path}: SHA-256 {found[:12]}…, {file.sha256[:12]}… was published; {mend}")


def stage_of(kind: str) -> str:
    """The stage that makes a kind of artifact."""
    return {"vectors": "embed", "model": "train"}.get(kind, kind)


def versions() -> dict[str, str]:
    """Versions of the libraries an artifact was made with."""
    return {name: metadata.version(name) for name in LIBRARIES}


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
