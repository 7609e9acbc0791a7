"""Reads the layout of a sentence-transformers folder: transformer, pooling, and the modules after pooling."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import files

Pooling = Literal["mean", "cls"]
Role = Literal["query", "document"]
Activation = Literal["identity", "tanh"]
ACTIVATIONS: dict[str, Activation] = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
}
MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
SIZES = ("hidden_size", "dim", "d_model", "n_embd")
"""Keys of the size of a token's vector in transformers' configurations."""
LETTERS = 100
"""Characters that are read for each token that a text may have. A longer text is cut before it is tokenized."""
DENSE = "2_Dense"
"""Subfolder of a trained head. The base encoder's modules after pooling are in `base/`."""
QUERY_ENCODER = "query_encoder"
"""Folder, next to `encoder`, of an encoder that encodes only queries."""
PROMPTS = "config_sentence_transformers.json"
PROMPT_NAMES: dict[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""Role of a text -> names of its prompt. The first name that a folder has counts, as in sentence-transformers."""
T5 = ("t5", "mt5", "umt5")
"""Types of models with a decoder, of which rayhier loads only the encoder."""
SENTENCE = "sentence_embedding"


def query_folder(spec: EncoderSpec) -> str:
    """Return the name of the folder, in a trained model, of the encoder of queries."""
    return "encoder" if spec.documents is None else QUERY_ENCODER


@dataclass(frozen=True)
class DenseStep:
    """A linear layer with matrix D and bias b: y = activation(D x + b)."""

    folder: Path
    activation: Activation
    in_features: int
    out_features: int


@dataclass(frozen=True)
class NormalizeStep:
    """Normalisation to unit length, y = x / |x|."""


@dataclass(frozen=True)
class Layout:
    """Steps by which a folder encodes a text: transformer, pooling, then its modules in order."""

    transformer: Path
    config: dict[str, Any]
    pooling: Pooling
    steps: tuple[DenseStep | NormalizeStep, ...]
    configs: tuple[Path, ...]
    """Files that hold the layout: modules.json, prompts and the modules' configurations."""
    width: int
    dimension: int
    """Length of a text's vector, m."""
    prompts: dict[str, str]
    default_prompt: str | None
    lowercase: bool

    @property
    def is_t5(self) -> bool:
        return self.config.get("model_type") in T5

    def prefixes(self, spec: EncoderSpec) -> dict[Role, str]:
        """Return the texts that are put before queries and before documents. Empty for most encoders."""
        stated: dict[Role, str | None] = {"query": spec.query_prefix, "document": spec.document_prefix}
        return {role: self._prompt(role) if text is None else text for role, text in stated.items()}

    def _prompt(self, role: Role) -> str:
        named = [name for name in (*PROMPT_NAMES[role], self.default_prompt) if name in self.prompts]
        return self.prompts[named[0]] or "" if named else ""


def read_layout(folder: Path) -> Layout:
    """Read the layout of an encoder's folder. Without modules.json, a folder is a transformer with mean pooling."""
    try:
        return _read(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"encoder.model: {folder}/modules.json or a file it names cannot be read") from None


def _read(folder: Path) -> Layout:
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    if kinds[:1] != ["Transformer"] or set(kinds[1:2]) - {"Pooling"} or not set(kinds[2:]) <= {"Dense", "Normalize"}:
        raise InputError(
            f"encoder.model: {folder} has the modules {', '.join(kinds)}; "
            "allowed: Transformer, Pooling, then any of Dense and Normalize"
        )
    transformer = modules[0][1]
    config, width = _config(transformer)
    prompts, default = _prompts(folder)
    pooling = _pooling(modules[1][1]) if len(modules) > 1 else "mean"
    steps = tuple(_dense(path) if kind == "Dense" else _normalize(path) for kind, path in modules[2:])
    size = width
    for step in steps:
        if isinstance(step, DenseStep):
            if step.in_features != size:
                raise InputError(f"encoder.model: {step.folder} takes vectors of size {step.in_features}, gets {size}")
            size = step.out_features
    candidates = [folder / "modules.json", folder / PROMPTS, *(path / "config.json" for _, path in modules)]
    configs = tuple(path for path in candidates if path.is_file())
    lowercase = (folder / "modules.json").is_file() and _lowercase(transformer)
    return Layout(transformer, config, pooling, steps, configs, width, size, prompts, default, lowercase)


def _modules(folder: Path) -> list[tuple[str, Path]]:
    path = folder / "modules.json"
    if not path.is_file():
        return [("Transformer", folder)]
    modules = []
    for module in files.read_json(path):
        package, _, kind = str(module["type"]).rpartition(".")
        if package.partition(".")[0] != "sentence_transformers":
            raise InputError(
                f"encoder.model: {path} asks for {module['type']}, which is custom code; "
                "allowed: modules of sentence_transformers"
            )
        if Path(module["path"]).is_absolute() or ".." in Path(module["path"]).parts:
            raise InputError(f"encoder.model: {path} names {module['path']}; allowed: folders inside {folder}")
        modules.append((kind, folder / module["path"]))
    return modules


def _config(transformer: Path) -> tuple[dict[str, Any], int]:
    path = transformer / "config.json"
    try:
        config = dict(files.read_json(path))
        size = next(int(config[name]) for name in SIZES if name in config)
    except (OSError, ValueError, TypeError, StopIteration):
        raise InputError(f"encoder.model: {path} is not a transformer's configuration with a hidden_size") from None
    if config.get("is_encoder_decoder") and config.get("model_type") not in T5:
        raise InputError(f"encoder.model: {path} describes an encoder with a decoder; allowed: BERT, T5 and others")
    return config, size


def _pooling(path: Path) -> Pooling:
    settings = files.read_json(path / "config.json")
    if "pooling_mode" in settings:
        modes = settings["pooling_mode"]
        names = [modes] if isinstance(modes, str) else list(modes)
    else:
        names = [mode for key, mode in MODES.items() if settings.get(key)] or ["mean"]
    if not settings.get("include_prompt", True):
        raise InputError(f"encoder.model: {path} leaves the prompt out of pooling; allowed: include_prompt true")
    for name in get_args(Pooling):
        if names == [name]:
            return name  # type: ignore[no-any-return]
    raise InputError(f"encoder.model: {path} pools by {' and '.join(map(str, names))}; allowed: mean or cls")


def _dense(path: Path) -> DenseStep:
    settings = files.read_json(path / "config.json")
    activation = ACTIVATIONS.get(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    if activation is None:
        raise InputError(
            f"encoder.model: {path} has the activation {settings['activation_function']}; "
            f"allowed: {', '.join(ACTIVATIONS)}"
        )
    if settings.get("use_residual"):
        raise InputError(f"encoder.model: {path} has use_residual true; allowed: false")
    _check_names(path, settings)
    return DenseStep(path, activation, int(settings["in_features"]), int(settings["out_features"]))


def _normalize(path: Path) -> NormalizeStep:
    config = path / "config.json"
    _check_names(path, files.read_json(config) if config.is_file() else {})
    return NormalizeStep()


def _check_names(path: Path, settings: dict[str, Any]) -> None:
    for key in ("module_input_name", "module_output_name"):
        if settings.get(key) not in (None, SENTENCE):
            raise InputError(f"encoder.model: {path} has {key} {settings[key]}; allowed: {SENTENCE}")


def _prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    path = folder / PROMPTS
    settings = files.read_json(path) if path.is_file() else {}
    prompts, name = dict(settings.get("prompts") or {}), settings.get("default_prompt_name")
    if name is not None and name not in prompts:
        raise InputError(f"encoder.model: {path} has the default prompt {name!r}; allowed: one of {sorted(prompts)}")
    return prompts, name


def _lowercase(transformer: Path) -> bool:
    configs = sorted(transformer.glob("sentence_*_config.json"))
    return bool(configs and files.read_json(configs[0]).get("do_lower_case"))
