"""Find and check the folder of a cross-encoder; code in the folder is never run."""

from dataclasses import dataclass
from pathlib import Path

from rayhier.spec import InputError
from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.storage import current, files, model_folder, paths

KEY = "cross_encoder.model"
LAYERS = ("num_hidden_layers", "n_layers")
SCALE = "scale.safetensors"
"""File of an `emb` head: the number that the cosine is multiplied by."""


@dataclass(frozen=True)
class CrossEncoderFolder:
    path: Path
    layers: int
    files: str
    """SHA-256 over the names and digests of all files that change scores."""


def describe(spec: CrossEncoderSpec) -> CrossEncoderFolder:
    """Find the cross-encoder's folder that a spec names and check its files. InputError says what is wrong."""
    path = model_folder.find(spec.model, KEY)
    config = model_folder.read_config(path, KEY)
    digests, _ = model_folder.checked_weights(path, KEY, spec.sha256)
    others = [path / "config.json", *([path / SCALE] if (path / SCALE).is_file() else []), *model_folder.meaning(path)]
    digests |= {file: files.digest(file) for file in others}
    layers = next((int(config[name]) for name in LAYERS if name in config), 1)
    return CrossEncoderFolder(path, layers, model_folder.digest_by_name(path, digests))


def published_pairs(place: str) -> list[str]:
    """Return the fingerprints of the corpus and the vectors in a run's workdir. InputError if one is missing."""
    now = current.read(paths.locate(place))
    missing = [kind for kind in ("corpus", "vectors") if kind not in now.artifacts]
    if missing:
        raise InputError(f"cross_encoder.train.pairs: {place} publishes no {missing[0]}; allowed: workdirs of runs")
    return [now.artifacts["corpus"], now.artifacts["vectors"]]
