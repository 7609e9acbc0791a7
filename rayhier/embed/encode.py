"""Texts -> unit vectors, in batches of texts of like length."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from rayhier.model.encoder import Encoder
from rayhier.model.precision import resolve
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.columns import Floats


class TextEncoder:
    """An encoder folder, ready to encode."""

    def __init__(self, folder: Path, spec: EncoderSpec, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.dtype = resolve(spec.precision, self.device)
        self.encoder = Encoder(folder, self.dtype).to(self.device)
        self.max_length = min(spec.max_length, self.encoder.longest)
        self.batch_size = spec.batch_size

    @property
    def dimension(self) -> int:
        """m, the size of a vector."""
        return self.encoder.dimension

    def encode(self, texts: Sequence[str]) -> Floats:
        """Unit vectors [n, m], float32, in the order of the texts."""
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        if not texts:
            return vectors
        tokens = self.encoder.tokenizer(list(texts), truncation=True, max_length=self.max_length)["input_ids"]
        order = np.argsort([-len(ids) for ids in tokens], kind="stable")
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            batch = self.encoder.tokenizer.pad({"input_ids": [tokens[row] for row in rows]}, return_tensors="pt")
            encoded = self.encoder(batch["input_ids"].to(self.device), batch["attention_mask"].to(self.device))
            vectors[rows] = encoded.cpu().numpy()
        return vectors


def document_text(title: str, text: str) -> str:
    """What is encoded of a document: title, then text, as BEIR does."""
    return f"{title} {text}".strip()
