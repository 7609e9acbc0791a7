"""Texts -> vectors, in batches of texts of like length."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from rayhier.model.encoder import Encoder
from rayhier.model.precision import resolve, resolve_device
from rayhier.spec.encoder import Device, EncoderSpec
from rayhier.storage.columns import Floats

CHUNK = 16_384
"""Texts sorted by length together; while one chunk is encoded the next is tokenised."""


class TextEncoder:
    """An encoder folder, ready to encode; `device` overrides the spec's."""

    def __init__(self, folder: Path, spec: EncoderSpec, device: Device | None = None) -> None:
        self.device = resolve_device(device or spec.device)
        self.dtype = resolve(spec.precision, self.device)
        self.encoder = Encoder(folder, self.dtype, spec.similarity).to(self.device)
        self.max_length = min(spec.max_length, self.encoder.longest)
        self.batch_size = spec.batch_size
        self.padding: int = self.encoder.tokenizer.pad_token_id or 0

    @property
    def dimension(self) -> int:
        """m, the size of a vector."""
        return self.encoder.dimension

    def encode(self, texts: Sequence[str]) -> Floats:
        """Vectors [n, m], float32, in the order of the texts; unit vectors for cosine."""
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        done = 0
        for tokens in self._tokenised(texts):
            vectors[done : done + len(tokens)] = self._encode(tokens)
            done += len(tokens)
        return vectors

    def _tokenised(self, texts: Sequence[str]) -> Iterator[list[list[int]]]:
        """Token ids of the texts, chunk by chunk, the next one made while the last is used."""
        chunks = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
        if len(chunks) < 2:
            yield from map(self.tokenise, chunks)
            return
        with ThreadPoolExecutor(1, "tokenise") as thread:
            ahead = thread.submit(self.tokenise, chunks[0])
            for chunk in chunks[1:]:
                tokens, ahead = ahead.result(), thread.submit(self.tokenise, chunk)
                yield tokens
            yield ahead.result()

    def tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, cut to the greatest length."""
        prompted = [self.encoder.layout.prompt + text for text in texts]
        found: list[list[int]] = self.encoder.tokenizer(
            prompted,
            truncation=True,
            max_length=self.max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        return found

    @torch.inference_mode()
    def _encode(self, tokens: Sequence[Sequence[int]]) -> Floats:
        """Vectors of one chunk: on a GPU nothing waits for a batch before all are under way."""
        order = np.argsort([-len(ids) for ids in tokens], kind="stable")
        batches = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        parts = [self.encoder(*self.padded([tokens[row] for row in rows])) for rows in batches]
        vectors = np.empty((len(tokens), self.dimension), dtype=np.float32)
        vectors[order] = torch.cat(parts).cpu().numpy()
        return vectors

    def padded(self, batch: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Ids and mask [n, t] of texts, the longest first, padded on the right."""
        ids_NT = np.full((len(batch), len(batch[0])), self.padding, dtype=np.int64)
        mask_NT = np.zeros_like(ids_NT)
        for row, ids in enumerate(batch):
            ids_NT[row, : len(ids)] = ids
            mask_NT[row, : len(ids)] = 1
        return self._there(ids_NT), self._there(mask_NT)

    def _there(self, array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)


def document_text(title: str, text: str) -> str:
    """What is encoded of a document: title, then text, as BEIR does."""
    return f"{title} {text}".strip()


def document_texts(documents: pa.Table) -> list[str]:
    """What is encoded of each row of a documents table."""
    pairs = zip(documents["title"].to_pylist(), documents["text"].to_pylist(), strict=True)
    return [document_text(title, text) for title, text in pairs]
