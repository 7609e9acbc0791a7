"""Encode texts as vectors, in batches of texts of similar length."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints
from rayhier.embed.batches import CPU_BATCH, GPU_BATCH, Tokens, batches, padded
from rayhier.embed.tokeniser import Tokeniser
from rayhier.model.encoded import Encoded, Reader
from rayhier.model.encoder import Encoder
from rayhier.model.precision import best_device, resolve
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_layout import Role
from rayhier.threads import set_threads

S = TypeVar("S")
T = TypeVar("T")
CHUNK_TEXTS = 16_384
"""Number of texts that are sorted by length together. A thread tokenises the next texts at the same time."""


def limit_threads(cpus: int) -> None:
    """Limit this process to `cpus` threads. Call this function before the first tokenizer runs."""
    set_threads(cpus)
    os.environ["RAYON_NUM_THREADS"] = str(cpus)


def in_chunks(texts: Sequence[T]) -> list[Sequence[T]]:
    return [texts[start : start + CHUNK_TEXTS] for start in range(0, len(texts), CHUNK_TEXTS)]


def ahead(function: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """Yield `function` of each item. Meanwhile, a thread computes the next result."""
    if len(items) < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(1, "ahead") as thread:
        coming = thread.submit(function, items[0])
        for item in items[1:]:
            result, coming = coming.result(), thread.submit(function, item)
            yield result
        yield coming.result()


class TextEncoder:
    def __init__(self, folder: Path, spec: EncoderSpec) -> None:
        self.device = best_device()
        self.dtype = resolve(spec.precision, self.device)
        self.encoder = Encoder(folder, self.dtype, spec.similarity).to(self.device)
        self.tokenise = Tokeniser(self.encoder.tokenizer, self.encoder.layout, spec, self.encoder.longest)
        self.max_length = self.tokenise.max_length
        self.seen = 0
        """Number of tokens encoded since the encoder was loaded."""
        self.most = CPU_BATCH if self.device.type == "cpu" else GPU_BATCH
        self.padding: int = self.encoder.tokenizer.pad_token_id or 0

    @property
    def precision(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def dimension(self) -> int:
        return self.encoder.dimension

    @property
    def parameters(self) -> int:
        looked_up = sum(
            module.weight.numel() for module in self.encoder.modules() if isinstance(module, torch.nn.Embedding)
        )
        return sum(parameter.numel() for parameter in self.encoder.parameters()) - looked_up

    def encode(self, texts: Sequence[str], role: Role = "document") -> Floats:
        return self.encode_tokens(len(texts), self.tokenised(texts, role))

    def encode_for(self, reader: Reader | None, texts: Sequence[str], role: Role = "document") -> Encoded:
        return Encoded(self.encode(texts, role)) if reader is None else self.read(self.tokenise(texts, role), reader)

    def encode_tokens(self, n: int, chunks: Iterable[Tokens]) -> Floats:
        vectors = np.empty((n, self.dimension), dtype=np.float32)
        done = 0
        for tokens in chunks:
            vectors[done : done + len(tokens)] = self.read(tokens).numpy
            done += len(tokens)
        return vectors

    def tokenised(self, texts: Sequence[str], role: Role = "document") -> Iterator[Tokens]:
        return ahead(partial(self.tokenise, role=role), in_chunks(texts))

    def read(self, tokens: Tokens, reader: Reader | None = None) -> Encoded:
        """Encode one chunk. On a GPU all batches are launched before any result is waited for."""
        if not len(tokens):
            return Encoded(np.zeros((0, self.dimension), np.float32))
        rows, *parts = zip(*self.batches(tokens, reader), strict=True)
        back = torch.from_numpy(np.argsort(np.concatenate(rows), kind="stable"))
        return Encoded(*(torch.cat(part).cpu()[back].numpy() for part in parts))

    @torch.inference_mode()
    def batches(self, tokens: Tokens, reader: Reader | None = None, begin: int = 0) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of each batch, its vectors, and what `reader` returns for its tokens, the longest texts first.

        The first `begin` texts in this order are left out. `begin` must be the start of a batch of an earlier call.
        """
        for rows in batches(tokens, self.most, begin):
            batch = [tokens[row] for row in rows]
            ids_NT, mask_NT = self.padded(batch)
            hidden_NTM = self.encoder.hidden(ids_NT, mask_NT)
            vector_NM = self.encoder.pool(hidden_NTM, mask_NT)
            self.seen += sum(map(len, batch))
            yield rows, vector_NM, *(() if reader is None else (reader(hidden_NTM.float(), mask_NT),))

    def padded(self, batch: Tokens) -> tuple[Tensor, Tensor]:
        ids_NT, mask_NT = padded(batch, self.padding)
        return self._there(ids_NT), self._there(mask_NT)

    def _there(self, array: Ints) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)
