"""`WORKDIR/current.json`: names the artifacts that the commands search, index and serve open."""

from typing import Any

from pydantic import BaseModel, ValidationError

from rayhier.spec import InputError, JobSpec
from rayhier.storage import files
from rayhier.storage.artifact import OLDER, Artifact
from rayhier.storage.paths import Location

NAME = "current.json"
FORMAT = 5
RELEASES = {3: "0.2.0"}
"""Older formats that `rayhier upgrade` converts to FORMAT, with the release that wrote each."""


class Current(BaseModel, frozen=True, extra="forbid"):
    """The spec of the newest run that built an index, and its artifacts' fingerprints."""

    format: int = FORMAT
    spec: JobSpec
    artifacts: dict[str, str]
    seeds: dict[str, dict[str, str]] = {}
    """Seed -> kind -> fingerprint of the artifact, for all seeds but the first."""
    before: str | None = None
    """Fingerprint of the index that current.json named before."""


def write(workdir: Location, current: Current) -> None:
    value: dict[str, Any] = current.model_dump(mode="json")
    files.write_json(workdir / NAME, value)


def read(workdir: Location) -> Current:
    """Read a workdir's current.json. InputError if no run has built an index there, or the file is damaged."""
    try:
        saved = files.read_json(workdir / NAME)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{workdir / NAME}: no such file. Build an index with rayhier run SPEC first") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{workdir / NAME}: cannot be read as JSON: {error}") from None
    _check(workdir, saved)
    try:
        return Current.model_validate(saved)
    except ValidationError as error:
        raise InputError(f"{workdir / NAME}: cannot be read: {error.errors(include_url=False)[0]['msg']}") from None


def check_format(workdir: Location) -> bool:
    """Return True if there is a readable current.json. InputError if an incompatible version of rayhier wrote it."""
    try:
        saved = files.read_json(workdir / NAME)
    except (OSError, ValueError):  # missing or damaged: the next run writes it again
        return False
    _check(workdir, saved)
    return True


def _check(workdir: Location, saved: Any) -> None:
    if not isinstance(saved, dict) or (found := saved.get("format", FORMAT)) == FORMAT:
        return
    if release := RELEASES.get(found):
        mend = f"was written by rayhier {release}: run rayhier upgrade {workdir}"
        raise InputError(f"{workdir / NAME}: format {found}, not {FORMAT}: {mend}")
    raise InputError(f"{workdir / NAME}: format {found}, not {FORMAT}: {OLDER}")


def keep(workdir: Location, release: str) -> None:
    """Copy the current.json that a release wrote, before an upgrade replaces it."""
    files.replace(workdir / f"current-{release}.json", (workdir / NAME).read_bytes())


def kept(workdir: Location, release: str) -> dict[str, Any] | None:
    """Read the spec that a release wrote to current.json. None if the workdir was not upgraded from this release."""
    try:
        spec: dict[str, Any] = files.read_json(workdir / f"current-{release}.json")["spec"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{workdir / f'current-{release}.json'}: cannot be read as JSON: {error}") from None
    return spec


def artifact(workdir: Location, current: Current, kind: str) -> Artifact:
    if kind not in current.artifacts:
        raise InputError(f"{workdir / NAME}: names no {kind}. Build it with rayhier run SPEC")
    return Artifact.open(workdir / kind / current.artifacts[kind])
