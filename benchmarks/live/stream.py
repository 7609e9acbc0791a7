"""Documents that never run out: those of an index with their vectors, repeated with small noise and new ids.

Needs numpy alone, so that systems of other environments read the same documents.

Shapes: N documents, M embedding size, B documents of a batch, Q queries, K results.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

VECTORS, QUERIES, TEXTS = "vectors.npy", "queries.npy", "documents.json"
BATCH, TOGETHER = 1_000, 20
"""Documents of a batch; batches after which an index takes in what was added: what a server's tail holds at most."""
NOISE = 0.1
"""Length of what is added to a repeated document's vector."""
K = 10


@dataclass(frozen=True)
class Batch:
    """Documents that are added together."""

    ids: list[str]
    texts: list[str]
    vector_BM: Any


@dataclass(frozen=True)
class Stream:
    """The documents below a folder, and what follows them."""

    first: list[str]
    """Ids of the documents that are there before any is added; none begins with `added-`."""
    texts: list[str]
    vector_NM: Any
    query_QM: Any

    @classmethod
    def open(cls, folder: Path) -> "Stream":
        """Read what `write` wrote."""
        ids, texts = json.loads((folder / TEXTS).read_text())
        return cls(ids, texts, np.load(folder / VECTORS, mmap_mode="r"), np.load(folder / QUERIES))

    def write(self, folder: Path) -> None:
        """Write the documents and queries to files below a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TEXTS).write_text(json.dumps([self.first, self.texts]))
        np.save(folder / VECTORS, self.vector_NM)
        np.save(folder / QUERIES, self.query_QM)

    def vectors(self, number: int) -> Any:
        """Vectors [b, m] of a batch."""
        draw, row_B = np.random.default_rng(number), self._rows(number)
        noise_BM = draw.standard_normal((BATCH, self.vector_NM.shape[1]), dtype=np.float32)
        noise_BM *= NOISE / np.linalg.norm(noise_BM, axis=1, keepdims=True)
        vector_BM = self.vector_NM[row_B] + noise_BM
        return vector_BM / np.linalg.norm(vector_BM, axis=1, keepdims=True)

    def batch(self, number: int) -> Batch:
        """A batch of documents, of which no two numbers have one in common."""
        ids = [f"added-{number}-{place}" for place in range(BATCH)]
        return Batch(ids, [self.texts[row] for row in self._rows(number)], self.vectors(number))

    def text(self, name: str) -> str:
        """Text of the document with an id."""
        if name.startswith("added-"):
            _, number, place = name.split("-")
            return self.texts[(int(number) * BATCH + int(place)) % len(self.texts)]
        return self.texts[self._row_of[name]]

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.first)}

    def _rows(self, number: int) -> Any:
        return np.arange(number * BATCH, (number + 1) * BATCH) % len(self.texts)

    def exact(self, batches: int) -> list[list[str]]:
        """Ids of each query's best documents, by exact search, once so many batches were added."""
        queries = len(self.query_QM)
        score_QK, id_QK = np.full((queries, K), -np.inf, np.float32), np.full((queries, K), "", object)
        for ids, vector_BM in self._all(batches):
            score_QB = self.query_QM @ vector_BM.T
            best_QK = np.argpartition(-score_QB, K, axis=1)[:, :K]
            score_QF = np.concatenate([score_QK, np.take_along_axis(score_QB, best_QK, 1)], axis=1)
            id_QF = np.concatenate([id_QK, np.array(ids, object)[best_QK]], axis=1)
            order_QK = np.argsort(-score_QF, axis=1, kind="stable")[:, :K]
            score_QK, id_QK = np.take_along_axis(score_QF, order_QK, 1), np.take_along_axis(id_QF, order_QK, 1)
        ids_of_queries: list[list[str]] = id_QK.tolist()
        return ids_of_queries

    def _all(self, batches: int) -> Iterator[tuple[list[str], Any]]:
        for begin in range(0, len(self.first), 10 * BATCH):
            yield self.first[begin : begin + 10 * BATCH], self.vector_NM[begin : begin + 10 * BATCH]
        for number in range(batches):
            yield [f"added-{number}-{place}" for place in range(BATCH)], self.vectors(number)
