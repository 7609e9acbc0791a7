"""Published artifacts: folders `WORKDIR/KIND/FINGERPRINT/`. Readers trust only the files that record.json lists."""

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ValidationError

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.cache import fetch
from rayhier.storage.files import File, unseal
from rayhier.storage.paths import Location

Kind = Literal[
    "corpus",
    "generated",
    "vectors",
    "test",
    "cross_encoder",
    "scores",
    "model",
    "index",
    "factors",
    "calibration",
    "evaluate",
]
FORMAT = 2
OLDER = "was written by another version of rayhier. Use another workdir, or remove this workdir and run again"
RECORD = "record.json"
LIBRARIES = ("rayhier", "torch", "transformers", "ray", "pyarrow")


class Record(BaseModel, frozen=True, extra="forbid"):
    kind: Kind
    format: int = FORMAT
    fingerprint: str
    attempt: str
    """Name of the folder, next to record.json, that holds the files."""
    inputs: dict[str, str]
    files: list[File]
    counts: dict[str, Any]
    versions: dict[str, str]
    seconds: float
    device: str = "CPU"
    """Name of the GPU that the stage reserved, else "CPU"."""


@dataclass(frozen=True)
class Place:
    """The folder of an artifact, which may be published or not."""

    folder: Location

    @property
    def kind(self) -> str:
        return self.folder.parent.name

    def published(self) -> "Artifact | None":
        """Open the artifact. None if it is not published, InputError if its record.json is damaged."""
        path = self.folder / RECORD
        try:
            saved = unseal(path)
        except FileNotFoundError:
            return None
        except InputError as error:
            raise InputError(f"{error}. {_mend(self.kind)}") from None
        if isinstance(saved, dict) and saved.get("format", FORMAT) != FORMAT:
            raise InputError(f"{path}: format {saved['format']}, not {FORMAT}: {OLDER}")
        try:
            return Artifact(self.folder, Record.model_validate(saved))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            said = f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
            raise InputError(f"{path}: not a record of format {FORMAT}: {said}. {_mend(self.kind)}") from None

    def remove(self) -> None:
        """Remove the artifact: record.json first, then the files of every attempt to make it."""
        (self.folder / RECORD).unlink(missing_ok=True)
        files.remove(self.folder)


@dataclass(frozen=True)
class Artifact:
    folder: Location
    record: Record

    @classmethod
    def open(cls, folder: Location) -> Self:
        published = Place(folder).published()
        if published is None:
            raise InputError(f"{folder}: no artifact is published there. `rayhier run SPEC` makes it")
        return cls(published.folder, published.record)

    @property
    def root(self) -> Location:
        return self.folder / self.record.attempt

    def made_from(self) -> dict[str, "Artifact"]:
        """Open the inputs of the artifact in the same workdir, by kind. InputError if an input is not published."""
        work = self.folder.parent.parent
        return {kind: Artifact.open(work / kind / name) for kind, name in self.record.inputs.items()}

    def names(self, prefix: str) -> list[str]:
        """List the names of the artifact's files that begin with `prefix`, such as `data/`, sorted."""
        return sorted(file.name for file in self.record.files if file.name.startswith(prefix))

    def path(self, name: str) -> Location:
        return self.root / name

    def local(self, prefix: str) -> Path:
        """Return the local path of a folder of the artifact. A folder in a bucket is downloaded first."""
        if isinstance(self.root, Path):
            return self.root / prefix
        return fetch(self.root, [file for file in self.record.files if file.name.startswith(f"{prefix}/")]) / prefix

    def verify(self, without: tuple[str, ...] = ()) -> None:
        """Read all files not below the folders `without`. InputError names a file that differs from record.json."""
        for file in self.record.files:
            if not file.name.startswith(without):
                check(self.root, file, _mend(self.record.kind))

    def verified(self, name: str) -> Location:
        """Return the location of the file `name`. InputError if the file differs from record.json."""
        for file in self.record.files:
            if file.name == name:
                check(self.root, file, _mend(self.record.kind))
        return self.path(name)


def check(root: Location, file: File, mend: str) -> None:
    """Raise InputError if `root/file.name` is missing or differs from `file`. The advice `mend` ends the message."""
    path = root / file.name
    if not path.is_file():
        raise InputError(f"{path}: was published, but is missing. {mend}")
    size = path.stat().st_size
    if size != file.bytes:
        raise InputError(f"{path}: {size} bytes, but {file.bytes} were published. {mend}")
    digest = files.digest(path)
    if digest != file.sha256:
        raise InputError(f"{path}: SHA-256 is {digest[:12]}…, but {file.sha256[:12]}… was published. {mend}")


def versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in LIBRARIES}


def _mend(kind: str) -> str:
    stages = {"generated": "generate", "vectors": "embed", "model": "train", "calibration": "calibrate"}
    return f"Rebuild it with --fresh --stage {stages.get(kind, kind)}, then run the spec again for what depends on it"
