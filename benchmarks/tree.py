"""Document trees of very many synthetic vectors, in memory and streamed: time, memory, balance, mean cosine.

    python -m benchmarks.tree --documents 1_000_000 --branching 8 64

Vectors are synthetic, and say so: a mixture of 5,000 directions. Each tree is grown in a process of its own. Memory in
memory is the process's peak resident set, the vectors included; streamed it is the proportional set size (PSS) of the
largest process and of all of them, Ray's included, watched twice a second.
"""

import argparse
import json
import logging
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import tables
from benchmarks.collection import ROOT, RUNS
from benchmarks.machine import THREADS, set_threads, timed
from benchmarks.scale_stages import Stages
from benchmarks.synthetic import DIMENSION, centres, names, part, parts
from rayhier.arrays import Floats
from rayhier.cluster.document_tree import grow
from rayhier.cluster.shape import Level, statistics
from rayhier.storage import columns, files, schemas

WAYS = ("in memory", "streamed")


def cut(vector_NM: Floats, dimension: int) -> Floats:
    """Unit vectors [n, dimension]: the first numbers of each."""
    found = vector_NM[:, :dimension]
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def in_memory(given: argparse.Namespace, branching: int) -> dict[str, Any]:
    """Grow one tree in this process."""
    vector_NM, centre_CM, first = np.empty((given.documents, given.dimension), np.float32), centres(), 0
    for number, rows in parts(given.documents):
        vector_NM[first : first + rows] = cut(part(number, rows, centre_CM), given.dimension)
        first += rows
    made = []
    seconds = timed(lambda: made.append(grow(vector_NM, branching, 0)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {"seconds": seconds, "peak": [peak], "levels": list(map(asdict, statistics(made[0], vector_NM)))}


def streamed(given: argparse.Namespace, branching: int) -> dict[str, Any]:
    """Grow one tree through Ray, from vectors on storage."""
    import ray

    from rayhier.cluster.ray import grow_streamed
    from rayhier.spec.cluster import CpuWorkers

    folder = given.workdir / f"streamed-{branching}"
    shutil.rmtree(folder, ignore_errors=True)
    centre_CM, schema, paths = centres(), schemas.vectors("doc_id", given.dimension), []
    for number, rows in parts(given.documents):
        column = columns.vector_column(cut(part(number, rows, centre_CM), given.dimension), pa.float32())
        table = pa.table([names(number, rows), column], schema=schema)
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


def apart(given: argparse.Namespace, way: str, branching: int) -> dict[str, Any]:
    """Grow one tree in a process of its own."""
    print(f"{given.documents:,} documents, branching {branching}, {way}", file=sys.stderr, flush=True)
    options = {name: getattr(given, name) for name in ("documents", "dimension", "threads", "workdir")}
    options |= {"branching": branching, "one": way}
    command = [sys.executable, "-m", "benchmarks.tree", *(f"--{name}={value}" for name, value in options.items())]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"branching": branching, "way": way, **found}


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


def main() -> int:
    """Grow trees of each branching in both ways, one after the other."""
    parser = argparse.ArgumentParser(description="Document trees of very many synthetic vectors.")
    parser.add_argument("--documents", type=lambda text: int(text.replace("_", "")), default=1_000_000)
    parser.add_argument("--dimension", type=int, default=DIMENSION, help=f"at most {DIMENSION}")
    parser.add_argument("--branching", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--threads", type=int, default=THREADS, help="threads in memory, processes streamed")
    parser.add_argument("--workdir", type=Path, default=RUNS / "tree")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.workdir = given.workdir.absolute()
    if not 1 <= given.dimension <= DIMENSION:
        parser.error(f"--dimension: got {given.dimension}; allowed: 1 to {DIMENSION}")
    if given.one:
        set_threads(given.threads)
        print(json.dumps((in_memory if given.one == WAYS[0] else streamed)(given, given.branching[0])))
        return 0
    rows = [apart(given, way, branching) for branching in given.branching for way in WAYS]
    given.workdir.mkdir(parents=True, exist_ok=True)
    (given.workdir / "tree.json").write_text(json.dumps(rows, indent=1))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
