"""Places as users and the workers of a job give them."""

import contextlib
import os
from pathlib import Path

from rayhier.spec import InputError
from rayhier.storage.remote import Remote

Location = Path | Remote
"""Where artifacts lie: a path on this machine, or a key in a bucket."""

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it in a process that `ray job submit` starts, and in what that process starts."""

ELSEWHERE = {
    "workdir": ", s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
    "encoder.model": ", package:NAME, or a hub id ORG/NAME",
}
"""Places besides paths that the message of a relative one names."""


def locate(text: str) -> Location:
    """What `str()` of a location says, again a location; InputError where it is a URL of another kind."""
    if "://" not in text:
        return Path(text)
    try:
        return Remote.parse(text)
    except ValueError as error:
        raise InputError(f"got {text!r}; allowed: a path, {error}") from None


def resolve(key: str, text: str) -> Path:
    """The absolute path of a spec's value, `~` expanded.

    InputError where no path can be that, and inside a Ray job where it is relative.
    """
    try:
        given = Path(text).expanduser()
        path = given.resolve()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        shown = text if len(text) <= 80 else text[:77] + "…"
        raise InputError(f"{key}: got {shown!r}, which is no path here ({error.__class__.__name__})") from None
    if JOB in os.environ and not given.is_absolute():
        raise InputError(
            f"{key}: got {text!r}: inside a Ray job the working directory is a temporary copy of what was submitted, "
            f"on one node; allowed: an absolute path that every node has{ELSEWHERE.get(key, '')}"
        )
    return path


def is_there(text: str) -> bool:
    """Whether a spec's value is the path of something here; False where no path can be that."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        return Path(text).expanduser().exists()
    return False
