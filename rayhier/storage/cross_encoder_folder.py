"""Find and check the folder of a cross-encoder; code in the folder is never run."""

from dataclasses import dataclass
from pathlib import Path

from rayhier.spec import InputError
from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.storage import files, model_folder

KEY = "cross_encoder.model"
"""Key of the spec that names the cross-encoder's folder, for error messages."""
SCALE = "scale.safetensors"
"""File of an `emb` head: the number that the cosine is multiplied by."""


@dataclass(frozen=True)
class CrossEncoderFolder:
    """A checked folder of a cross-encoder, before or after training."""

    path: Path
    files: str
    """SHA-256 over the names and digests of all files that change scores: weights, configuration, tokenizer, scale."""


def describe(spec: CrossEncoderSpec) -> CrossEncoderFolder:
    """Find the cross-encoder's folder that a spec names and check its files.

    Raises InputError where there is no such folder, package or hub id, and where the folder has pickled weights,
    another SHA-256 than the spec's, or custom code.
    """
    path = model_folder.find(spec.model, KEY, _is_whole)
    config = path / "config.json"
    try:
        settings = dict(files.read_json(config))
    except (OSError, ValueError, TypeError):
        raise InputError(f"{KEY}: {path} holds no config.json that can be read; allowed: a model's folder") from None
    if "auto_map" in settings:
        raise InputError(
            f"{KEY}: {path}/config.json asks to run its own code (auto_map); allowed: models built into transformers"
        )
    weights = model_folder.weight_files(path, KEY)
    for file in weights:
        model_folder.check_whole(file, KEY)
    digests = {file: files.digest(file) for file in weights}
    sha256 = digests[weights[0]] if len(weights) == 1 else model_folder.digest_of(digests[file] for file in weights)
    if spec.sha256 is not None and sha256 != spec.sha256:
        raise InputError(f"cross_encoder.sha256: {path} has {sha256}; allowed: {spec.sha256}, which the spec expects")
    other_files = [config, *([path / SCALE] if (path / SCALE).is_file() else []), *model_folder.meaning(path)]
    digests |= {file: files.digest(file) for file in other_files}
    return CrossEncoderFolder(path, model_folder.digest_by_name(path, digests))


def _is_whole(path: Path) -> bool:
    """Return True if a cached snapshot has a configuration, a tokenizer and weights."""
    try:
        complete = bool(model_folder.weight_files(path, KEY) and model_folder.meaning(path))
    except InputError:
        return False
    return complete and (path / "config.json").is_file()
