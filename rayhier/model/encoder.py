"""Encode texts with a transformer, pooling, and further layers, such as a trained head.

Folders are in sentence-transformers' layout, weights in safetensors only. A trained residual head E(x) = x + W x is a
`Dense` module with the weight I + W after the base encoder's modules. If the similarity is cosine, the head comes
before the last `Normalize`, because the length of x does not matter there.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from tokenizers import normalizers
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec, Similarity
from rayhier.storage import files
from rayhier.storage.model_folder import INDEX, WEIGHTS, weight_files
from rayhier.storage.model_layout import ACTIVATIONS, DENSE, MODES, PROMPTS, Activation, DenseStep, Layout, read_layout

DENSE_WEIGHT = "linear.weight"
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
LAYERS = ("encoder.layer", "transformer.layer", "layers", "encoder.block")
"""Names of the list of layers in models of `transformers`, in this order: BERT, DistilBERT, ModernBERT, T5."""


class ResidualHead(nn.Module):
    """A linear layer with a residual on a frozen encoder's vectors: E(x) = x + W x, W = 0 at the start (ours)."""

    def __init__(self, dimension: int, similarity: Similarity = "cosine") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dimension, dimension))
        self.similarity = similarity

    def forward(self, x_NM: Tensor) -> Tensor:
        mapped_NM = x_NM + x_NM @ self.weight.T
        return F.normalize(mapped_NM, dim=-1) if self.similarity == "cosine" else mapped_NM


class Dense(nn.Module):
    def __init__(self, matrix_OM: Tensor, bias_O: Tensor | None = None, activation: Activation = "identity") -> None:
        super().__init__()
        self.linear = nn.Linear(matrix_OM.shape[1], matrix_OM.shape[0], bias=bias_O is not None)
        self.activation: Activation = activation
        with torch.no_grad():
            self.linear.weight.copy_(matrix_OM)
            if bias_O is not None:
                self.linear.bias.copy_(bias_O)

    def forward(self, x_NM: Tensor) -> Tensor:
        y_NO: Tensor = self.linear(x_NM)
        return torch.tanh(y_NO) if self.activation == "tanh" else y_NO


class Normalize(nn.Module):
    def forward(self, x_NM: Tensor) -> Tensor:
        return F.normalize(x_NM, dim=-1)


class Encoder(nn.Module):
    """A text encoder from a sentence-transformers folder. InputError if weights are missing."""

    def __init__(self, folder: Path, dtype: torch.dtype, similarity: Similarity = "cosine") -> None:
        super().__init__()
        layout = read_layout(folder)
        self.layout = layout
        self.similarity = similarity
        self.dimension = layout.dimension
        self.tokenizer = load_tokenizer(layout)
        self.transformer = load_transformer(folder, dtype)
        self.longest = positions(self.transformer)
        self.steps = nn.Sequential(*load_steps(layout, similarity))

    def forward(self, ids_NT: Tensor, mask_NT: Tensor) -> Tensor:
        """Compute float32 vectors [n, m] of texts from token ids [n, t]. The mask is 1 on tokens, 0 on padding."""
        return self.pool(self.hidden(ids_NT, mask_NT), mask_NT)

    def hidden(self, ids_NT: Tensor, mask_NT: Tensor) -> Tensor:
        hidden_NTM: Tensor = self.transformer(input_ids=ids_NT, attention_mask=mask_NT).last_hidden_state
        return hidden_NTM

    def pool(self, hidden_NTM: Tensor, mask_NT: Tensor) -> Tensor:
        pooled_NM: Tensor = self.steps(POOL[self.layout.pooling](hidden_NTM, mask_NT))
        return pooled_NM

    def trainable(self, which: Literal["last_layer", "all"]) -> list[nn.Parameter]:
        """Let the last transformer layer train, or with `all` the whole encoder but its pooler. Freeze other weights.

        InputError for `last_layer` if the architecture's layers are not known.
        """
        chosen: nn.Module = self if which == "all" else self._last_layer()
        self.requires_grad_(requires_grad=False)
        chosen.requires_grad_()
        pooler = getattr(self.transformer, "pooler", None)
        if pooler is not None:
            pooler.requires_grad_(requires_grad=False)
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def _last_layer(self) -> nn.Module:
        for place in LAYERS:
            try:
                layers = self.transformer.get_submodule(place)
            except AttributeError:
                continue
            if isinstance(layers, nn.ModuleList) and len(layers):
                return layers[-1]
        raise InputError(
            f"encoder.train: got 'last_layer', but the layers of {type(self.transformer).__name__} are not known; "
            "allowed: head, all, or a model like BERT, DistilBERT, ModernBERT, T5"
        )


def mean(hidden_NTM: Tensor, mask_NT: Tensor) -> Tensor:
    weight_NT1 = mask_NT.unsqueeze(-1).float()
    return (hidden_NTM.float() * weight_NT1).sum(1) / weight_NT1.sum(1).clamp(min=1e-9)


def first(hidden_NTM: Tensor, mask_NT: Tensor) -> Tensor:
    """Return each text's first token vector [n, m], in float32. Padding may be on the left or on the right."""
    at_N = mask_NT.int().argmax(dim=1)
    return hidden_NTM[torch.arange(hidden_NTM.shape[0], device=at_N.device), at_N].float()


POOL = {"mean": mean, "cls": first}


def load_tokenizer(layout: Layout) -> Any:
    from transformers import AutoTokenizer  # takes a second, which workers without texts save

    tokenizer = AutoTokenizer.from_pretrained(layout.transformer, **LOCAL)
    if layout.lowercase:
        backend = tokenizer.backend_tokenizer
        before = [normalizers.Lowercase(), *([backend.normalizer] if backend.normalizer else [])]
        backend.normalizer = normalizers.Sequence(before)
    return tokenizer


def load_transformer(folder: Path, dtype: torch.dtype, **own: Any) -> Any:
    """Load the transformer of a folder. InputError if weights are missing, because they would be random."""
    from transformers import AutoModel, AutoModelForTextEncoding

    layout = read_layout(folder)
    kind = AutoModelForTextEncoding if layout.is_t5 else AutoModel
    place = layout.transformer
    model, missing, mismatched = load_pretrained(kind, place, dtype, **own)
    wrong = [*(name for name in missing if not name.startswith("pooler.")), *mismatched]
    if wrong:
        raise InputError(
            f"encoder.model: {place / WEIGHTS} lacks {len(wrong)} tensors of its config, or has other shapes; "
            f"allowed: the weights of its config. The first: {wrong[0]}"
        )
    return model


def load_pretrained(kind: Any, folder: Path, dtype: torch.dtype, **own: Any) -> tuple[Any, list[str], list[str]]:
    """Load a model by a class of `transformers`. Returns the model, and names of missing and misshapen weights."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    model, loading = kind.from_pretrained(
        folder, use_safetensors=True, dtype=dtype, output_loading_info=True, **own, **LOCAL
    )
    missing, mismatched = (sorted(map(str, loading[key])) for key in ("missing_keys", "mismatched_keys"))
    return model.eval(), missing, mismatched


def positions(transformer: Any) -> int:
    """Return the most tokens that a transformer reads: its positions, without those that RoBERTa reserves."""
    table = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return int(getattr(transformer.config, "max_position_embeddings", 512)) - (0 if padding is None else padding + 1)


def load_steps(layout: Layout, similarity: Similarity) -> list[nn.Module]:
    """Load the layers after pooling. For cosine the last layer is `Normalize`, even if the folder has none."""
    steps: list[nn.Module] = [load_dense(step) if isinstance(step, DenseStep) else Normalize() for step in layout.steps]
    ends_normal = bool(steps) and isinstance(steps[-1], Normalize)
    return steps if ends_normal or similarity == "dot" else [*steps, Normalize()]


def load_dense(step: DenseStep) -> Dense:
    tensors = load_file(step.folder / WEIGHTS)
    matrix, bias = tensors.get(DENSE_WEIGHT), tensors.get("linear.bias")
    if matrix is None or tuple(matrix.shape) != (step.out_features, step.in_features):
        raise InputError(
            f"encoder.model: {step.folder / WEIGHTS} holds no {DENSE_WEIGHT} "
            f"of {step.out_features} x {step.in_features}, as its config says"
        )
    return Dense(matrix, bias, step.activation)


def save_encoder(base: Path, head: ResidualHead, max_length: int, folder: Path, *, trained: bool = True) -> None:
    """Write a base encoder, with its head if `trained`. Programs that load it cut texts at `max_length` tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    layout = read_layout(base)
    copied = [layout.transformer / "config.json", layout.transformer / INDEX, *weight_files(layout.transformer)]
    for file in copied:
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    load_tokenizer(layout).save_pretrained(folder)
    before = load_steps(layout, head.similarity)
    after = [before.pop()] if head.similarity == "cosine" else []
    dense = Dense(torch.eye(len(head.weight)) + head.weight.detach().cpu())
    placed = [
        *((f"base/{number}", step) for number, step in enumerate(before)),
        *([(DENSE, dense)] if trained else []),
        *(("3_Normalize", step) for step in after),
    ]
    _write_modules(folder, layout, placed, max_length, head.similarity)


def save_trained(encoder: Encoder, max_length: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    encoder.transformer.save_pretrained(folder)
    encoder.tokenizer.save_pretrained(folder)
    placed = [(f"base/{number}", step) for number, step in enumerate(encoder.steps)]
    _write_modules(folder, encoder.layout, placed, max_length, encoder.similarity)


def _write_modules(
    folder: Path, layout: Layout, steps: Sequence[tuple[str, nn.Module]], max_length: int, similarity: Similarity
) -> None:
    places = [("Transformer", ""), ("Pooling", "1_Pooling"), *((type(step).__name__, place) for place, step in steps)]
    listed = [
        {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, place) in enumerate(places)
    ]
    files.write_json(folder / "modules.json", listed)
    files.write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": layout.lowercase}
    )
    pooling = {"word_embedding_dimension": layout.width, **{key: mode == layout.pooling for key, mode in MODES.items()}}
    files.write_json(folder / "1_Pooling" / "config.json", pooling)
    prompts = {"prompts": layout.prompts, "default_prompt_name": layout.default_prompt}
    files.write_json(folder / PROMPTS, {**prompts, "similarity_fn_name": similarity})
    for place, step in steps:
        (folder / place).mkdir(parents=True, exist_ok=True)
        if isinstance(step, Dense):
            _write_dense(step, folder / place)


def write_prompts(folder: Path, spec: EncoderSpec) -> None:
    """Write the prefixes of queries and documents into a trained encoder's folder, for other programs."""
    settings = files.read_json(folder / PROMPTS)
    prompts = settings["prompts"] | read_layout(folder).prefixes(spec)
    files.write_json(folder / PROMPTS, {**settings, "prompts": prompts})


def _write_dense(dense: Dense, folder: Path) -> None:
    activation = next(name for name, ours in ACTIVATIONS.items() if ours == dense.activation)
    config = {
        "in_features": dense.linear.in_features,
        "out_features": dense.linear.out_features,
        "bias": dense.linear.bias is not None,
        "activation_function": activation,
    }
    files.write_json(folder / "config.json", config)
    tensors = {name: value.detach().cpu().contiguous() for name, value in dense.state_dict().items()}
    save_file(tensors, folder / WEIGHTS)
