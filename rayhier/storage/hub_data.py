"""Finds a data set of the Hugging Face hub: a local folder, or the commit of a revision on the hub."""

import re
from pathlib import Path

from rayhier.spec import InputError
from rayhier.storage import paths

HUB_SECONDS = 10.0
COMMIT = re.compile(r"[0-9a-f]{40}")
EXTRA = "pip install 'rayhier[huggingface]'"


def folder(key: str, path: str) -> Path | None:
    """Return the folder that `path` names, or None if `path` is a hub id. InputError if `path` is neither."""
    is_id = re.fullmatch(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?", path) is not None and not path.startswith(".")
    if is_id and not paths.is_there(path):
        return None
    local = paths.resolve(key, path)
    if local.is_dir():
        return local
    if not is_id:
        raise InputError(f"{key}: got {path!r}, no such folder; allowed: a folder, or a hub id such as BeIR/scifact")
    return None


def commit(key: str, path: str) -> str:
    """Return the commit of a hub data set (ID@REVISION). If REVISION is no commit, ask the hub, or raise InputError."""
    revision = path.partition("@")[2]
    return revision if COMMIT.fullmatch(revision) else ask(key, path)


def ask(key: str, path: str) -> str:
    """Ask the hub for the commit of a data set (ID or ID@REVISION). InputError without an answer in 10 seconds."""
    try:
        from huggingface_hub import HfApi, constants
    except ImportError:
        raise InputError(f"corpus.type: huggingface needs a package that is not installed: {EXTRA}") from None
    try:
        name, _, revision = path.partition("@")
        commit = HfApi().dataset_info(name, revision=revision or None, timeout=HUB_SECONDS).sha
    except Exception as error:  # noqa: BLE001  the library's, its HTTP client's and the system's errors share no base
        raise InputError(
            f"{key}: got {path!r}, no such folder. {constants.ENDPOINT} did not provide a data set of that name "
            f"({_first(error)}); allowed: a folder, a hub id, or ID@COMMIT"
        ) from None
    return str(commit)


def _first(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text[:200]}"
