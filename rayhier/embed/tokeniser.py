"""Turn texts into token ids without loading an encoder's weights, so that CPUs can tokenise while a GPU encodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from rayhier.embed.batches import Tokens
from rayhier.model.encoder import LOCAL, load_tokenizer, positions
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_layout import LETTERS, Layout, Role, read_layout


class Tokeniser:
    def __init__(self, tokenizer: Any, layout: Layout, spec: EncoderSpec, longest: int) -> None:
        self.tokenizer, self.prefixes, self.max_length = tokenizer, layout.prefixes(spec), min(spec.max_length, longest)

    @classmethod
    def open(cls, folder: Path, spec: EncoderSpec) -> Self:
        from transformers import AutoConfig, AutoModel

        layout = read_layout(folder)
        with torch.device("meta"):
            transformer = AutoModel.from_config(AutoConfig.from_pretrained(layout.transformer, **LOCAL))
        return cls(load_tokenizer(layout), layout, spec, positions(transformer))

    def __call__(self, texts: Sequence[str], role: Role = "document") -> Tokens:
        backend = self.tokenizer.backend_tokenizer  # without offsets and masks, a quarter faster than transformers
        backend.enable_truncation(self.max_length)
        backend.no_padding()
        prefixed = [self.prefixes[role] + text[: LETTERS * self.max_length] for text in texts]
        return [np.array(encoding.ids, np.int32) for encoding in backend.encode_batch_fast(prefixed)]


def packed(tokens: Tokens) -> dict[str, bytes]:
    ids = np.concatenate([np.zeros(0, np.int32), *tokens])
    ends = np.cumsum([len(ids) for ids in tokens], dtype=np.int64)
    return {"ids": ids.tobytes(), "ends": ends.tobytes()}


def unpacked(row: dict[str, Any]) -> Tokens:
    """Unpack the token ids of texts from the bytes of `packed`.

    >>> [ids.tolist() for ids in unpacked(packed([[5, 6], [], [7]]))]
    [[5, 6], [], [7]]
    """
    ids, ends = np.frombuffer(row["ids"], np.int32), np.frombuffer(row["ends"], np.int64)
    return list(np.split(ids, ends[:-1])) if len(ends) else []
