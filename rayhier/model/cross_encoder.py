"""Score pairs with a cross-encoder: a transformer that reads a query and a document as one sequence.

Head `cls` is sequence classification with one output. Head `emb` is the scaled cosine of the mean token vectors of
query and document. `emb` is by Yadav et al., "Adaptive Retrieval and Scalable Indexing for k-NN Search with
Cross-Encoders", 2024.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.model.encoder import LOCAL, load_pretrained, load_transformer, mean, positions
from rayhier.spec import InputError
from rayhier.spec.cross_encoder import Head
from rayhier.storage.cross_encoder_folder import KEY, SCALE
from rayhier.storage.model_folder import WEIGHTS
from rayhier.storage.model_layout import LETTERS

START_SCALE = 20.0
IDENTITY = "torch.nn.modules.linear.Identity"
NEW = ("classifier.", "score.", "pre_classifier.", "bert.pooler.", "pooler.", "roberta.pooler.")
"""Prefixes of the names of weights that a transformer lacks until it is trained on pairs."""
FIRST_READ = ("BertLayer", "RobertaLayer", "XLMRobertaLayer", "ElectraLayer")
"""Class names of transformer layers with equal structure, in models whose classifiers read only the first token."""


@dataclass(frozen=True)
class TokenPairs:
    """Tokens of n (query, document) pairs, padded to t tokens. Segments are 1 in queries and 2 in documents."""

    ids_NT: Tensor
    mask_NT: Tensor
    type_NT: Tensor
    """Token types [n, t] that tell the transformer which tokens are of the query and of the document."""
    segment_NT: Tensor

    def to(self, device: torch.device) -> "TokenPairs":
        return TokenPairs(*(part.to(device) for part in (self.ids_NT, self.mask_NT, self.type_NT, self.segment_NT)))


class ScoreLayer(nn.Linear):
    """A linear layer that computes scores in float32 under any precision. bfloat16 would make many scores equal."""

    def forward(self, x_NM: Tensor) -> Tensor:
        with torch.autocast(x_NM.device.type, enabled=False):
            return F.linear(x_NM.float(), self.weight.float(), None if self.bias is None else self.bias.float())


class CrossEncoder(nn.Module):
    def __init__(self, transformer: Any, tokenizer: Any, head: Head, scale: float = START_SCALE) -> None:
        super().__init__()
        self.transformer, self.tokenizer, self.head = transformer, tokenizer, head
        self.scale = nn.Parameter(torch.tensor(scale), requires_grad=head == "emb")
        base = transformer.base_model if head == "cls" else transformer
        self.longest = positions(base)
        self.types = int(getattr(transformer.config, "type_vocab_size", 0) or 0) > 1

    def forward(self, pairs: TokenPairs) -> Tensor:
        inputs = {"input_ids": pairs.ids_NT, "attention_mask": pairs.mask_NT}
        if self.types:
            inputs["token_type_ids"] = pairs.type_NT
        if self.head == "cls":
            logits_N1: Tensor = self.transformer(**inputs).logits
            return logits_N1[:, 0].float()
        hidden_NTM: Tensor = self.transformer(**inputs).last_hidden_state.float()
        query_NM, item_NM = (mean(hidden_NTM, pairs.segment_NT == segment) for segment in (1, 2))
        return self.scale * F.cosine_similarity(query_NM, item_NM, dim=-1)

    def tokenise(self, queries: Sequence[str], items: Sequence[str], max_length: int) -> list[tuple[Any, ...]]:
        """Tokenise pairs, cut to `max_length`. Returns for each pair token ids, types, and segments.

        Segments are 1 in the query, 2 in the document, and 0 elsewhere.
        """
        max_length = min(max_length, self.longest)
        encoding = self.tokenizer(
            *([text[: LETTERS * max_length] for text in texts] for texts in (queries, items)),
            truncation=True,
            max_length=max_length,
            return_attention_mask=False,
            return_token_type_ids=True,
            verbose=False,
        )
        segments = [
            [0 if segment is None else segment + 1 for segment in encoding.sequence_ids(n)] for n in range(len(queries))
        ]
        return list(zip(encoding["input_ids"], encoding["token_type_ids"], segments, strict=True))

    def padded(self, tokens: Sequence[tuple[Any, ...]]) -> TokenPairs:
        longest = max(len(ids) for ids, _, _ in tokens)
        ids_NT, types_NT, segment_NT, mask_NT = np.zeros((4, len(tokens), longest), np.int64)
        ids_NT += self.tokenizer.pad_token_id or 0
        for row, (ids, types, segments) in enumerate(tokens):
            ids_NT[row, : len(ids)], types_NT[row, : len(ids)] = ids, types
            segment_NT[row, : len(ids)], mask_NT[row, : len(ids)] = segments, 1
        return TokenPairs(*(torch.from_numpy(array) for array in (ids_NT, mask_NT, types_NT, segment_NT)))


def load_cross_encoder(
    folder: Path,
    head: Head,
    dtype: torch.dtype = torch.float32,
    seed: int | None = None,
) -> CrossEncoder:
    """Load a cross-encoder. With a `seed`, a missing head gets random weights. InputError if more is missing."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
    if head == "emb":
        file = folder / SCALE
        scale = float(load_file(file)["scale"]) if file.is_file() else START_SCALE
        model = CrossEncoder(load_transformer(folder, dtype), tokenizer, head, scale)
    else:
        model = CrossEncoder(_classifier(folder, dtype, seed), tokenizer, head)
        _last_layer_for_first_token(model.transformer)
    return model.eval()


def _last_layer_for_first_token(transformer: Any) -> None:
    """Make a classifier's last layer compute only the first token, because the classifier reads no other token."""
    layers = [module for module in transformer.modules() if type(module).__name__ in FIRST_READ]
    if not layers:
        return
    layer, forward_all = layers[-1], layers[-1].forward

    def forward(hidden_NTM: Tensor, mask: Tensor | None = None, *rest: Any, **named: Any) -> Any:
        if layer.training or (mask is not None and mask.dim() != 4):
            return forward_all(hidden_NTM, mask, *rest, **named)
        attention = layer.attention.self
        first_N1M = hidden_NTM[:, :1]
        query, key, value = (
            part.unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
            for part in (attention.query(first_N1M), attention.key(hidden_NTM), attention.value(hidden_NTM))
        )
        first_mask = None if mask is None else mask[:, :, :1]
        read = F.scaled_dot_product_attention(query, key, value, attn_mask=first_mask, scale=attention.scaling)
        first_N1M = layer.attention.output(read.transpose(1, 2).flatten(-2), first_N1M)
        return layer.output(layer.intermediate(first_N1M), first_N1M)

    layer.forward = forward


def _classifier(folder: Path, dtype: torch.dtype, seed: int | None) -> Any:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = AutoConfig.from_pretrained(folder, **LOCAL)
    outputs = config.num_labels
    if any(str(name).endswith("ForSequenceClassification") for name in config.architectures or ()) and outputs != 1:
        raise InputError(f"{KEY}: {folder} has {outputs} outputs; allowed: one, the score of a pair")
    config.num_labels = 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed or 0)
        kind = AutoModelForSequenceClassification
        model, missing, mismatched = load_pretrained(kind, folder, dtype, config=config)
    wrong = [*(name for name in missing if seed is None or not name.startswith(NEW)), *mismatched]
    if wrong:
        raise InputError(
            f"{KEY}: {folder / WEIGHTS} lacks {len(wrong)} tensors of a cross-encoder, the first: {wrong[0]}; "
            "allowed: a model trained on pairs, cross_encoder.train, or head emb"
        )
    _score_in_float32(model)
    return model.eval()


def _score_in_float32(model: Any) -> None:
    for name, module in reversed(list(model.named_modules())):
        if isinstance(module, nn.Linear) and module.out_features == 1:
            layer = ScoreLayer(module.in_features, 1, bias=module.bias is not None)
            layer.load_state_dict(module.state_dict())
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, layer)
            return


def save_cross_encoder(model: CrossEncoder, max_length: int, folder: Path) -> None:
    """Write a folder that sentence-transformers' CrossEncoder loads. For head `emb`, the scale is a further file."""
    folder.mkdir(parents=True, exist_ok=True)
    model.transformer.config.sentence_transformers = {"activation_fn": IDENTITY}
    model.transformer.save_pretrained(folder)
    model.tokenizer.model_max_length = max_length
    model.tokenizer.save_pretrained(folder)
    if model.head == "emb":
        save_file({"scale": model.scale.detach().cpu().clone()}, folder / SCALE)
