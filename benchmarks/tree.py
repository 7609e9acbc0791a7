"""Document trees of very many synthetic vectors, in memory and streamed: time, memory, balance, mean cosine."""

import argparse
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import tables
from benchmarks.commands import Options, apart, count
from benchmarks.machine import THREADS, Stages, peak_memory, set_threads, timed
from benchmarks.synthetic import DIMENSION, centres, names, part, parts, unit
from rayhier.arrays import Floats
from rayhier.cluster.document_tree import grow
from rayhier.cluster.shape import Level, statistics
from rayhier.progress import say
from rayhier.storage import columns, files, schemas


def vectors(given: argparse.Namespace) -> Iterator[tuple[int, Floats]]:
    """Number and vectors [n, m] of each part."""
    centre_CM = centres()
    for number, rows in parts(given.documents):
        yield number, unit(part(number, rows, centre_CM)[:, : given.dimension])


def in_memory(given: argparse.Namespace, branching: int) -> dict[str, Any]:
    """Grow one tree in this process."""
    set_threads(given.threads)
    vector_NM, first, made = np.empty((given.documents, given.dimension), np.float32), 0, []
    for _, own in vectors(given):
        vector_NM[first : first + len(own)] = own
        first += len(own)
    seconds = timed(lambda: made.append(grow(vector_NM, branching, 0)))
    return {"seconds": seconds, "peak": [peak_memory()], "levels": list(map(asdict, statistics(made[0], vector_NM)))}


def streamed(given: argparse.Namespace, branching: int) -> dict[str, Any]:
    """Grow one tree through Ray, from vectors on storage."""
    import ray

    from rayhier.cluster.ray import grow_streamed
    from rayhier.spec.cluster import CpuWorkers

    set_threads(given.threads)
    folder = given.workdir / f"streamed-{branching}"
    shutil.rmtree(folder, ignore_errors=True)
    schema, paths = schemas.vectors("doc_id", given.dimension), []
    for number, own in vectors(given):
        table = pa.table([names(number, len(own)), columns.vector_column(own, pa.float32())], schema=schema)
        paths.append(folder / "vectors" / f"part-{number:05d}.parquet")
        files.write_parquet(folder, f"vectors/{paths[-1].name}", [table], schema)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(address="local", num_cpus=given.threads + 1, **options)
    stages, workers = Stages(folder), CpuWorkers(workers=given.threads)
    with stages.of("grow"):
        levels = grow_streamed(paths, branching, 0, folder / "tree", folder / "scratch", workers)
    shutil.rmtree(folder)
    took = stages.took["grow"]
    return {"seconds": took["seconds"], "peak": [took["process"], took["total"]], "levels": list(map(asdict, levels))}


WAYS = {"in memory": in_memory, "streamed": streamed}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Table of the trees: balance and cosine are those of the lowest level's nodes and their documents."""

    def line(row: dict[str, Any]) -> list[str]:
        levels = [Level(**level) for level in row["levels"]]
        low = levels[-1]
        return [
            f"{row['branching']}, {row['way']}",
            ", ".join(f"{level.nodes:,}" for level in levels),
            f"{row['seconds']:.0f}",
            ", ".join(f"{peak / 1e9:.2f}" for peak in row["peak"]),
            f"{low.smallest}, {low.median:g}, {low.largest}",
            f"{low.empty}",
            ", ".join(f"{level.imbalance:.2f}" for level in levels),
            f"{low.cosine:.3f}",
        ]

    head = ["branching", "nodes", "s", "peak GB", "smallest, median, largest", "empty", "imbalance", "mean cosine"]
    return "\n".join(tables.table(head, map(line, rows)))


def main() -> None:
    """Grow trees of each branching in both ways, one after the other."""
    parser = Options("Document trees of very many synthetic vectors.", "tree")
    parser.add_argument("--documents", type=count, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=DIMENSION, help=f"at most {DIMENSION}")
    parser.add_argument("--branching", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--threads", type=int, default=THREADS, help="threads in memory, processes streamed")
    given = parser.parse_args()
    if not 1 <= given.dimension <= DIMENSION:
        parser.error(f"--dimension: got {given.dimension}; allowed: 1 to {DIMENSION}")
    rows = []
    for branching, (way, work) in product(given.branching, WAYS.items()):
        say(f"{given.documents:,} documents, branching {branching}, {way}")
        rows.append({"branching": branching, "way": way, **apart(work, given, branching)})
    given.workdir.mkdir(parents=True, exist_ok=True)
    (given.workdir / "tree.json").write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
