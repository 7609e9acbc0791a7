"""The text encoder: transformer -> mean pooling -> trained head, where there is one -> unit vector.

Reads and writes folders in sentence-transformers' layout, weights in safetensors only. A trained
residual head E(x) = x + W x is stored as that layout's `Dense` module with the weight I + W and no
bias: scale-free, so it may be applied to the base encoder's unit vectors or before normalising.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from rayhier.spec import InputError

DENSE = "2_Dense"
WEIGHTS = "model.safetensors"
DENSE_WEIGHT = "linear.weight"
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


class ResidualHead(nn.Module):
    """E(x) = (x + W x) / |x + W x| with W = 0 at the start: the frozen encoder's vectors (ours)."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dimension, dimension))

    def forward(self, x_NM: Tensor) -> Tensor:
        """Trained unit vectors [n, m] of base vectors [n, m]."""
        return F.normalize(x_NM + x_NM @ self.weight.T, dim=-1)


class Encoder(nn.Module):
    """Token ids -> unit vectors; `tokenizer` makes the ids."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        super().__init__()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
        self.transformer = load_transformer(folder, dtype)
        self.dimension: int = self.transformer.config.hidden_size
        self.longest = positions(self.transformer)
        self.head: ResidualHead | None = load_head(folder)

    @torch.inference_mode()
    def forward(self, ids_NT: Tensor, mask_NT: Tensor) -> Tensor:
        """Float32 unit vectors [n, m] of token ids [n, t]; `mask` is 1 on tokens, 0 on padding."""
        hidden_NTM = self.transformer(input_ids=ids_NT, attention_mask=mask_NT).last_hidden_state.float()
        weight_NT1 = mask_NT.unsqueeze(-1).float()
        pooled_NM = (hidden_NTM * weight_NT1).sum(1) / weight_NT1.sum(1).clamp(min=1e-9)
        unit_NM: Tensor = F.normalize(pooled_NM, dim=-1)
        return unit_NM if self.head is None else self.head(unit_NM)


def load_transformer(folder: Path, dtype: torch.dtype) -> Any:
    """The transformer of a folder; InputError where its weights are not all there: they would be random."""
    transformers_logging.disable_progress_bar()
    model, found = AutoModel.from_pretrained(
        folder, use_safetensors=True, dtype=dtype, output_loading_info=True, **LOCAL
    )
    missing = sorted(name for name in found["missing_keys"] if not name.startswith("pooler."))
    wrong = [*missing, *sorted(str(name) for name in found["mismatched_keys"])]
    if wrong:
        raise InputError(
            f"encoder.model: {folder / WEIGHTS} lacks {len(wrong)} tensors of its config, first {wrong[0]}"
        )
    return model.eval()


def positions(transformer: Any) -> int:
    """Tokens it has positions for; RoBERTa's kind reserves those up to its padding's."""
    table = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return int(getattr(transformer.config, "max_position_embeddings", 512)) - (0 if padding is None else padding + 1)


def load_head(folder: Path) -> ResidualHead | None:
    """The trained head of an encoder folder, None where it has none."""
    file = folder / DENSE / WEIGHTS
    if not file.is_file():
        return None
    matrix = load_file(file)[DENSE_WEIGHT]
    head = ResidualHead(len(matrix))
    with torch.no_grad():
        head.weight.copy_(matrix - torch.eye(len(matrix)))
    return head.eval()


def save_encoder(base: Path, head: ResidualHead, max_length: int, folder: Path) -> None:
    """Write the base encoder and its trained head as one sentence-transformers folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", WEIGHTS):
        shutil.copyfile(base / name, folder / name)
    AutoTokenizer.from_pretrained(base, **LOCAL).save_pretrained(folder)
    size = len(head.weight)
    modules = ["Transformer", "Pooling", "Dense", "Normalize"]
    places = ["", "1_Pooling", DENSE, "3_Normalize"]
    _write(
        folder / "modules.json",
        [
            {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{module}"}
            for number, (module, place) in enumerate(zip(modules, places, strict=True))
        ],
    )
    _write(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": size, "pooling_mode_mean_tokens": True})
    dense = {
        "in_features": size,
        "out_features": size,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    _write(folder / DENSE / "config.json", dense)
    matrix = torch.eye(size) + head.weight.detach().cpu()
    save_file({DENSE_WEIGHT: matrix.contiguous()}, folder / DENSE / WEIGHTS)
    (folder / "3_Normalize").mkdir(exist_ok=True)


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")
