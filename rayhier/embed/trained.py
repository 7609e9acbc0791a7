"""The vectors of a trained model: of stored base vectors where a head was trained, else of the texts again."""

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import torch

from rayhier.embed.encode import TextEncoder
from rayhier.embed.tokeniser import Tokens
from rayhier.model.encoder import ResidualHead, load_head
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.artifact import Artifact
from rayhier.storage.columns import Floats

BATCH = 16_384


class TrainedEncoder:
    """What a train step made of the base encoder."""

    def __init__(self, head: ResidualHead | None, encoder: TextEncoder | None) -> None:
        self.head, self.encoder = head, encoder

    @classmethod
    def open(cls, model: Artifact, spec: EncoderSpec) -> Self:
        """The encoder of a published model; its transformer is loaded only where it was trained."""
        folder = model.local("encoder")
        return cls(load_head(folder), None) if spec.train == "head" else cls(None, TextEncoder(folder, spec))

    def __call__(self, base_NM: Floats, texts: Callable[[], Sequence[str]], tokens: Tokens | None = None) -> Floats:
        """Trained vectors [n, m] of texts whose base vectors [n, m] are stored; of their `tokens` where there are."""
        if self.encoder is not None:
            return self.encoder.encode(texts()) if tokens is None else self.encoder.encode_tokens(tokens)
        return base_NM if self.head is None else encode_all(self.head, base_NM)


@torch.inference_mode()
def encode_all(head: ResidualHead, base_NM: Floats) -> Floats:
    """Trained vectors [n, m] of base vectors [n, m], in batches."""
    parts = [head(part) for part in torch.split(torch.from_numpy(base_NM), BATCH)]
    return np.asarray(torch.cat(parts).numpy())
