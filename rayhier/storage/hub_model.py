"""Find a model by its Hugging Face hub id: in the hub's local cache, else downloaded into that cache."""

import re
from collections.abc import Callable
from pathlib import Path

from rayhier.spec import InputError
from rayhier.storage.hub_data import HUB_SECONDS

HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
WANTED = ("*.json", "*.txt", "*.model", "*.safetensors")
"""Patterns of files to download: configurations, tokenizers and safetensors; no pickles, no code."""
UNWANTED = ("onnx/*", "openvino/*", "coreml/*", "original/*", "*/onnx/*")
"""Patterns of files that are not downloaded: weights in formats that are not read."""


def is_hub_id(model: str) -> bool:
    """Return True if a text has the form `ORG/NAME` or `ORG/NAME@REVISION` of a hub id."""
    return HUB_ID.fullmatch(model) is not None


def fetch(model: str, is_whole: Callable[[Path], bool], key: str) -> Path:
    """Return the folder of a hub model's snapshot; download it where the local cache has no complete snapshot.

    `is_whole` returns True for a complete folder: other programs may have cached only some files, and without
    modules.json a folder would be read as another encoder. Raises InputError, which names the spec's `key`, where
    neither the cache nor the hub has the model.
    """
    # Imported here: an encoder from a folder or package does not need the hub's client.
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    hub_id = HUB_ID.fullmatch(model)
    if hub_id is None:
        raise ValueError(f"{model} is not a hub id")

    def snapshot(revision: str | None, *, local: bool) -> Path:
        return Path(
            snapshot_download(
                hub_id["repo"],
                revision=revision,
                allow_patterns=list(WANTED),
                ignore_patterns=list(UNWANTED),
                local_files_only=local,
            )
        )

    try:
        cached = snapshot(hub_id["revision"], local=True)
    except (LocalEntryNotFoundError, OSError, ValueError):
        cached = None
    if cached is not None and is_whole(cached):
        return cached
    try:
        # The hub is asked first: where it does not answer, snapshot_download would return an incomplete snapshot.
        commit = HfApi().model_info(hub_id["repo"], revision=hub_id["revision"], timeout=HUB_SECONDS).sha
        return snapshot(commit, local=False)
    except Exception as error:  # noqa: BLE001  whatever the hub's client and its HTTP library raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{key}: got {model!r}: no such folder, not complete in the hub's local cache, and the hub did "
            f"not provide it ({type(error).__name__}: {reason}); allowed: a folder, package:NAME, or a hub id ORG/NAME"
        ) from None
