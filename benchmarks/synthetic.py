"""Synthetic vectors, and corpora of them: a mixture of 5,000 directions in 384 dimensions, queries near documents."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.storage import columns, files, schemas
from rayhier.storage.artifact import Artifact, Kind, Place
from rayhier.storage.attempt import Attempt, Output

DIMENSION, CENTRES, SPREAD, NEAR = 384, 5_000, 0.7, 0.35
"""Noise of documents around their centre and of queries around a document, in lengths."""
PART = 65_536
QUERIES, K = 500, 10


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
        made.append(files.write_parquet(attempt.root, f"documents/part-{number:05d}.parquet", [table], table.schema))
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
