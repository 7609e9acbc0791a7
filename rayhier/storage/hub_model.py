"""Encoders by their hub id: from the hub's local cache, else downloaded into it."""

import re
from collections.abc import Callable
from pathlib import Path

from rayhier.spec import InputError

HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
WANTED = ("*.json", "*.txt", "*.model", "*.safetensors")
"""Configurations, tokenizers and safetensors: nothing that is pickled or runs."""
UNWANTED = ("onnx/*", "openvino/*", "coreml/*", "original/*", "*/onnx/*")

ANSWER_SECONDS = 10.0


def is_hub_id(model: str) -> bool:
    """Whether a spec's value reads `ORG/NAME` or `ORG/NAME@REVISION`."""
    return HUB_ID.fullmatch(model) is not None


def fetch(model: str, is_whole: Callable[[Path], bool]) -> Path:
    """The snapshot folder of a hub id; the hub is asked only where the cache holds no whole one.

    A cache that other programs filled may lack files, modules.json among them, and would be read as another encoder.
    Raises InputError where neither the cache nor the hub has it.
    """
    # Imported here: a folder or a package needs none of it.
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    found = HUB_ID.fullmatch(model)
    if found is None:
        raise ValueError(f"{model} is no hub id")

    def snapshot(revision: str | None, *, local: bool) -> Path:
        return Path(
            snapshot_download(
                found["repo"],
                revision=revision,
                allow_patterns=list(WANTED),
                ignore_patterns=list(UNWANTED),
                local_files_only=local,
            )
        )

    try:
        cached = snapshot(found["revision"], local=True)
    except (LocalEntryNotFoundError, OSError, ValueError):
        cached = None
    if cached is not None and is_whole(cached):
        return cached
    try:
        # Asked first: where nobody answers, snapshot_download would hand out the part it has.
        commit = HfApi().model_info(found["repo"], revision=found["revision"], timeout=ANSWER_SECONDS).sha
        return snapshot(commit, local=False)
    except Exception as error:  # noqa: BLE001  whatever the hub's client and its HTTP library raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"encoder.model: got {model!r}: no such folder here, not whole in the hub's cache, and the hub does not "
            f"give it ({type(error).__name__}: {reason}); allowed: a folder, package:NAME, or a hub id ORG/NAME"
        ) from None
