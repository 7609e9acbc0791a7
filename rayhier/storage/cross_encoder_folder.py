"""Finds and checks the folder of a cross-encoder. Code in the folder is never run."""

from dataclasses import dataclass
from pathlib import Path

from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.storage import files, model_folder

KEY = "cross_encoder.model"
SCALE = "scale.safetensors"
"""File with the number by which the head `emb` of a cross-encoder multiplies the cosine."""


@dataclass(frozen=True)
class CrossEncoderFolder:
    path: Path
    files: str
    """SHA-256 over the names and digests of all files that change scores."""


def describe(spec: CrossEncoderSpec) -> CrossEncoderFolder:
    """Find the cross-encoder's folder that a spec names and check its files. InputError says what is wrong."""
    path = model_folder.find(spec.model, KEY)
    model_folder.read_config(path, KEY)
    digests, _ = model_folder.checked_weights(path, KEY, spec.sha256)
    others = [path / "config.json", *([path / SCALE] if (path / SCALE).is_file() else []), *model_folder.meaning(path)]
    digests |= {file: files.digest(file) for file in others}
    return CrossEncoderFolder(path, model_folder.digest_by_name(path, digests))
