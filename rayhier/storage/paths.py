"""Converts texts from specs and command lines into paths and places in buckets."""

import contextlib
import os
from pathlib import Path

from rayhier.spec import InputError
from rayhier.storage.remote import Remote

Location = Path | Remote

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable that Ray sets in processes of a submitted job (`ray job submit`)."""

ELSEWHERE = {
    "workdir": ", s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
    "encoder.model": ", package:NAME, or a hub id ORG/NAME",
}


def locate(text: str) -> Location:
    """Convert a path, or s3://… or gs://…, into a location. InputError for a URL of another kind."""
    if "://" not in text:
        return Path(text)
    try:
        return Remote.parse(text)
    except ValueError as error:
        raise InputError(f"got {text!r}; allowed: a path, {error}") from None


def resolve(key: str, text: str) -> Path:
    """Return the absolute path of a spec's key, with `~` expanded. InputError if the path is relative in a Ray job."""
    try:
        expanded = Path(text).expanduser()
        path = expanded.resolve()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        shown = text if len(text) <= 80 else text[:77] + "…"
        raise InputError(f"{key}: got {shown!r}, not a path on this machine ({error.__class__.__name__})") from None
    if JOB in os.environ and not expanded.is_absolute():
        raise InputError(
            f"{key}: got {text!r}: inside a Ray job the working directory is a temporary copy; allowed: an absolute "
            f"path that every node has{ELSEWHERE.get(key, '')}"
        )
    return path


def is_there(text: str) -> bool:
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        return Path(text).expanduser().exists()
    return False
