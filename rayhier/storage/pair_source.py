"""Describe the source of generated pairs before a stage reads it: a file of pairs, or the folder of a model."""

from dataclasses import dataclass
from pathlib import Path

from rayhier.spec import InputError
from rayhier.spec.train import GeneratedSpec, QueryModel
from rayhier.storage import files, model_folder, paths
from rayhier.storage.source import scan_lines

FILE, MODEL = "train.generated.path", "train.generated.model"
ALLOWED = 'UTF-8, one JSON object per line, {"query": "…", "doc_id": "…"}'
CONFIGS = ("config.json", "generation_config.json")


@dataclass(frozen=True)
class PairSource:
    """The source of generated pairs, as far as a plan needs it."""

    path: Path
    """File of pairs, or folder of the model that writes queries."""
    identity: str
    """SHA-256 of the file, or over all files of the folder that change the model's output."""
    lines: int = 0


def describe(spec: GeneratedSpec) -> PairSource:
    """Find and check the file of pairs, or the folder of the model. InputError says what is wrong."""
    if isinstance(spec, QueryModel):
        return _model(spec)
    path = paths.resolve(FILE, spec.path)
    if not path.is_file():
        raise InputError(f"{FILE}: got {spec.path!r}, no such file; allowed: a file in {ALLOWED}")
    identity, _, lines = scan_lines(path)
    if not lines:
        raise InputError(f"{FILE}: {path} is empty; allowed: {ALLOWED}")
    return PairSource(path, identity, lines)


def _model(spec: QueryModel) -> PairSource:
    path = model_folder.find(spec.model, MODEL)
    if not model_folder.read_config(path, MODEL).get("is_encoder_decoder"):
        raise InputError(
            f"{MODEL}: {path / 'config.json'} describes no encoder with a decoder; allowed: models such as T5 or BART"
        )
    digests, _ = model_folder.checked_weights(path, MODEL)
    configs = [path / name for name in CONFIGS if (path / name).is_file()]
    digests |= {file: files.digest(file) for file in {*configs, *model_folder.meaning(path)}}
    return PairSource(path, model_folder.digest_by_name(path, digests))
