"""Vectors of all tokens of a collection's texts, made once: what splits by attention read, many times over."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.collection import Collection
from rayhier.arrays import Ints
from rayhier.dataset.documents import texts_of
from rayhier.dataset.queries import Queries
from rayhier.embed.encode import TextEncoder
from rayhier.train.tower import Side

CHUNK = 4_096
"""Texts that are encoded at a time."""


class TokenStore:
    """Float16 vectors of the tokens of documents, train, dev and asked queries by the base encoder, in a folder."""

    def __init__(self, folder: Path, collection: Collection, asked: Queries) -> None:
        """Read the store, or make it first."""
        spec = collection.spec.encoder
        sides: dict[Side, Sequence[str]] = {
            "document": texts_of(collection.corpus, collection.documents.ids),
            "query": collection.examples.query_texts,
            "dev": [*collection.dev.texts, *asked.texts],
        }
        self.asked_row = len(collection.dev)
        """Row of the first asked query on the side of dev queries."""
        if not folder.is_dir():
            encoder = TextEncoder(collection.model, spec.model_copy(update={"precision": "float32"}))
            unfinished = folder.with_name(f"{folder.name}-unfinished")
            unfinished.mkdir(parents=True, exist_ok=True)
            for side, texts in sides.items():
                _write(unfinished, side, encoder, texts)
            unfinished.rename(folder)
        self._stored = {
            side: (np.load(folder / f"{side}.npy", mmap_mode="r"), np.load(folder / f"{side}-begins.npy"))
            for side in sides
        }

    def read(self, side: Side, rows: Ints) -> tuple[Tensor, Tensor]:
        """Vectors [n, t, m] of the tokens of the rows' texts, and a mask [n, t], 1 on tokens."""
        token_AM, begin_N = self._stored[side]
        count_N = begin_N[rows + 1] - begin_N[rows]
        place_NT = begin_N[rows][:, None] + np.arange(count_N.max())
        mask_NT = place_NT < begin_N[rows + 1][:, None]
        token_NTM = token_AM[np.where(mask_NT, place_NT, 0)].astype(np.float32)
        return torch.from_numpy(token_NTM), torch.from_numpy(mask_NT.astype(np.int64))


@torch.inference_mode()
def _write(folder: Path, side: str, encoder: TextEncoder, texts: Sequence[str]) -> None:
    parts, counts = [], []
    for begin in range(0, len(texts), CHUNK):
        tokens = encoder.tokenise(texts[begin : begin + CHUNK])
        order = np.argsort([-len(ids) for ids in tokens], kind="stable")
        own: dict[int, np.ndarray] = {}
        for first in range(0, len(order), encoder.batch_size):
            rows = order[first : first + encoder.batch_size]
            hidden_NTM = encoder.encoder.hidden(*encoder.padded([tokens[row] for row in rows])).numpy()
            for row, hidden_TM in zip(rows, hidden_NTM, strict=True):
                own[row] = hidden_TM[: len(tokens[row])].astype(np.float16)
        parts += [own[row] for row in range(len(tokens))]
        counts += [len(ids) for ids in tokens]
    np.save(folder / f"{side}.npy", np.concatenate(parts))
    np.save(folder / f"{side}-begins.npy", np.concatenate([[0], np.cumsum(counts)]))
