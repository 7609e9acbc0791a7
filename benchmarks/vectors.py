"""Vectors to search, in any number: a synthetic mixture, and real vectors moved by differences of their neighbours.

The mixture has 5,000 directions in 384 dimensions, and queries near documents. It is easy, because a query's neighbours
lie in one cluster. Moved copies are harder: x + 0.7 (a - b), of unit length. Here a and b are two of the ten nearest
neighbours of x. A copy lies in a place of the same density, in the directions of its neighbourhood.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.machine import medians
from rayhier.arrays import Floats, Ints, Values
from rayhier.storage import columns, files, parquet, schemas
from rayhier.storage.artifact import Artifact, Kind, Place
from rayhier.storage.attempt import Attempt, Output

DIMENSION, CENTRES, SPREAD, NEAR = 384, 5_000, 0.7, 0.35
"""Noise of documents around their centre and of queries around a document, in lengths."""
PART = 65_536
QUERIES, K = 500, 10
NEIGHBOURS, MOVED = 10, 0.7
AT_ONCE = 4096
READ = 10_000, 768
"""Number and dimension of the vectors that are read from files of both forms."""
TOGETHER = 2_048
"""Queries that are compared with a part of the vectors at a time."""
TIED = 1e-5
"""Difference of scores that counts as none."""


def centres() -> Floats:
    """The mixture's directions [5,000, 384]."""
    return unit(np.random.default_rng(0).standard_normal((CENTRES, DIMENSION), dtype=np.float32))


def unit(x_NM: Floats) -> Floats:
    """Scale vectors [n, m] to unit length."""
    return np.asarray(x_NM / np.linalg.norm(x_NM, axis=1, keepdims=True), dtype=np.float32)


def part(number: int, rows: int, centre_CM: Floats) -> Floats:
    """Unit vectors [rows, 384] of one part of the documents."""
    rng = np.random.default_rng([1, number])
    noise = rng.standard_normal((rows, DIMENSION), dtype=np.float32) * np.float32(SPREAD / DIMENSION**0.5)
    return unit(centre_CM[rng.integers(0, CENTRES, rows)] + noise)


def parts(documents: int) -> list[tuple[int, int]]:
    """Number and rows of each part."""
    return [(number, min(PART, documents - first)) for number, first in enumerate(range(0, documents, PART))]


def queries(documents: int) -> tuple[Floats, Ints]:
    """Queries [q, m] near documents, and their exact ten nearest documents [q, 10] by number."""
    centre_CM, rng = centres(), np.random.default_rng(2)
    number, rows = parts(documents)[0]
    near = part(number, rows, centre_CM)[rng.choice(rows, QUERIES, replace=False)]
    noise = rng.standard_normal(near.shape, dtype=np.float32) * np.float32(NEAR / DIMENSION**0.5)
    query_QM = unit(near + noise)
    best, ids = np.full((QUERIES, K), -np.inf, np.float32), np.zeros((QUERIES, K), np.int64)
    for number, rows in parts(documents):
        score = query_QM @ part(number, rows, centre_CM).T
        top = np.argpartition(-score, K, axis=1)[:, :K]
        both = np.concatenate([best, np.take_along_axis(score, top, 1)], axis=1)
        names = np.concatenate([ids, top + number * PART], axis=1)
        order = np.argsort(-both, axis=1)[:, :K]
        best, ids = np.take_along_axis(both, order, 1), np.take_along_axis(names, order, 1)
    return query_QM, ids


def publish(folder: Path, kind: Kind, inputs: dict[str, str], made: Callable[[Attempt], Output]) -> Artifact:
    """An artifact that `made(attempt)` writes, unless it is there."""
    place = Place(folder / kind / "synthetic000")
    found = place.published()
    if found is not None:
        return found
    with Attempt.start(place) as attempt:
        return attempt.publish(kind, inputs, made(attempt))


def names(number: int, rows: int) -> list[str]:
    """Names of the documents of one part."""
    return [f"s{number * PART + row:010d}" for row in range(rows)]


def write(attempt: Attempt, documents: int, one: Callable[[int, int], pa.Table]) -> tuple[files.File, ...]:
    """Write a file for each part."""
    made = []
    for number, rows in parts(documents):
        table = one(number, rows)
        made.append(parquet.write(attempt.root, f"documents/part-{number:05d}.parquet", [table], table.schema))
    return tuple(made)


def synthetic(folder: Path, documents: int) -> tuple[Artifact, Artifact]:
    """Corpus and vectors of so many documents; texts are empty but for a word."""
    centre_CM, schema = centres(), schemas.vectors("doc_id", DIMENSION)

    def texts(attempt: Attempt) -> Output:
        def one(number: int, rows: int) -> pa.Table:
            return pa.table([names(number, rows), [""] * rows, ["synthetic"] * rows], schema=schemas.DOCUMENTS)

        return Output({"rows": documents}, write(attempt, documents, one))

    def vectors(attempt: Attempt) -> Output:
        def one(number: int, rows: int) -> pa.Table:
            column = columns.vector_column(part(number, rows, centre_CM), pa.float32())
            return pa.table([names(number, rows), column], schema=schema)

        return Output({"dimension": DIMENSION, "precision": ["float32"]}, write(attempt, documents, one))

    return publish(folder, "corpus", {}, texts), publish(folder, "vectors", {}, vectors)


@dataclass(frozen=True)
class Asked:
    """Queries [q, m], and the score [q] of the k-th nearest vector of each."""

    query_QM: Floats
    least_Q: Values

    @classmethod
    def of(cls, query_QM: Floats, vector_NM: np.ndarray, k: int) -> Self:
        """Compare queries with all vectors."""
        last_Q1 = best(query_QM, vector_NM, k)[:, -1:]
        return cls(query_QM, scores(query_QM, vector_NM, last_Q1)[:, 0])

    def recall(self, found_QK: Ints, vector_NM: np.ndarray) -> float:
        """Share of the k vectors found [q, k] that are as near as the k-th nearest; -1: none.

        Of equally near vectors, of which moved copies have many, any will do.
        """
        score_QK = np.where(found_QK < 0, -np.inf, scores(self.query_QM, vector_NM, np.maximum(found_QK, 0)))
        return float((score_QK >= self.least_Q[:, None] - TIED).mean())


def scores(query_QM: Floats, vector_NM: np.ndarray, row_QK: Ints) -> Values:
    """Inner products [q, k] of queries [q, m] and rows [q, k] of vectors."""
    return np.stack(
        [np.asarray(vector_NM[row_K], np.float64) @ query_M for query_M, row_K in zip(query_QM, row_QK, strict=True)]
    )


def harder(vector_NM: Floats, times: int, path: Path) -> np.memmap:
    """Vectors [times · n, m] as float16 in a file: `vector_NM` [n, m], then moved copies of them."""
    n, m = vector_NM.shape
    made = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(times * n, m))
    made[:n] = vector_NM
    if times == 1:
        made.flush()
        return made
    near_NK, rng = neighbours(vector_NM, NEIGHBOURS), np.random.default_rng(0)
    for copy in range(1, times):
        first_N, further_N = rng.integers(0, NEIGHBOURS, n), rng.integers(1, NEIGHBOURS, n)  # two different ones
        a_N, b_N = (near_NK[np.arange(n), place_N] for place_N in (first_N, (first_N + further_N) % NEIGHBOURS))
        made[copy * n : (copy + 1) * n] = unit(vector_NM + np.float32(MOVED) * (vector_NM[a_N] - vector_NM[b_N]))
    made.flush()
    return made


def neighbours(vector_NM: Floats, count: int) -> Ints:
    """The `count` nearest other vectors [n, count] of each."""
    near_NK, vectors = np.empty((len(vector_NM), count), np.int64), torch.from_numpy(vector_NM)
    for begin in range(0, len(vector_NM), AT_ONCE):
        part = vectors[begin : begin + AT_ONCE]
        near_NK[begin : begin + AT_ONCE] = (part @ vectors.T).topk(count + 1, dim=1).indices[:, 1:].numpy()
    return near_NK


def best(query_QM: Floats, vector_NM: np.ndarray, k: int) -> Ints:
    """The k nearest vectors [q, k] of each query, by products with all."""
    blocks = torch.split(torch.from_numpy(query_QM), TOGETHER)
    best_of = [(torch.empty(len(block), 0), torch.empty(len(block), 0, dtype=torch.int64)) for block in blocks]
    for begin in range(0, len(vector_NM), PART):
        part = torch.from_numpy(np.asarray(vector_NM[begin : begin + PART], np.float32))
        row_F = begin + torch.arange(len(part))
        for number, (block, (score_QK, row_QK)) in enumerate(zip(blocks, best_of, strict=True)):
            score_QF, place_QK = torch.cat([score_QK, block @ part.T], 1).topk(k, dim=1)
            row_QF = torch.cat([row_QK, row_F.expand(len(block), -1)], 1)
            best_of[number] = score_QF, row_QF.gather(1, place_QK)
    return torch.cat([row_QK for _, row_QK in best_of]).numpy()


def reading() -> str:
    """Compare the times to read vectors in the form of today and in that of 0.2.0, lists with a dictionary."""
    vector_NM = np.random.default_rng(0).standard_normal(READ, np.float32)
    vector_NM /= np.linalg.norm(vector_NM, axis=1, keepdims=True)
    now = pa.table({"vector": columns.vector_column(vector_NM, pa.float16())})
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder, parquet.write(Path(folder), "new.parquet", [now], now.schema).name)
        pq.write_table(columns.as_lists(now), old := Path(folder, "old.parquet"), compression="zstd")
        works = {name: partial(columns.read, [path], ["vector"]) for name, path in (("lists", old), ("bytes", new))}
        seconds = medians(works, rounds=9)
    return f"{READ} float16: {seconds}, {seconds['lists'] / seconds['bytes']:.1f} times as fast"


if __name__ == "__main__":
    print(reading())
