"""Measure a leaf map of many synthetic vectors: time, memory, bytes, and how the work of a query grows."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import leaf_maps, tables
from benchmarks.collection import ROOT
from benchmarks.commands import Options, count
from benchmarks.machine import THREADS, Stages, set_threads, timed
from benchmarks.pages import plot
from benchmarks.vectors import DIMENSION, K, centres, part, parts, publish, queries, synthetic
from rayhier.arrays import Floats, Ints
from rayhier.dataset.balance import balance
from rayhier.evaluate.curve import beams
from rayhier.executor.here import Here
from rayhier.index.stage import build
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import LearnedIvf, open_router
from rayhier.model.router import save_router
from rayhier.progress import say
from rayhier.search.request.hits import Answer, answers
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import JobSpec
from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.leaf_map import LeafMap

SAMPLE = 1_000_000
BATCH = 64
RECALL, GROWTH = 0.95, 0.6
BILLION = 1_000_000_000


def model(folder: Path, spec: JobSpec, documents: int) -> Artifact:
    """A router of k-means leaves, settled on a sample; untaught, as there are no judged queries."""

    def write(attempt: Attempt) -> Output:
        centre_CM = centres()
        kept = [int(rows * min(1.0, SAMPLE / documents)) for _, rows in parts(documents)]
        sample_NM: npt.NDArray[Any] = np.empty((sum(kept), DIMENSION), np.float16)
        begins = np.cumsum([0, *kept])
        for (number, rows), begin, end in zip(parts(documents), begins, begins[1:], strict=False):
            sample_NM[begin:end] = part(number, rows, centre_CM)[: end - begin]
        router = leaf_maps.settled(spec, sample_NM, documents)
        with files.filling(attempt.root / "router") as own_folder:
            save_router(router, own_folder)
        with files.filling(attempt.root / "encoder") as own_folder:
            (own_folder / "none").write_text("vectors are what they are\n")
        return Output({"leaves": router.n_leaves, "sample": len(sample_NM)})

    return publish(folder, "model", {}, write)


def work(router: LearnedIvf, leaf_map: LeafMap, query_QM: Floats, near_QK: Ints) -> dict[str, float]:
    """Choose a beam by where the nearest documents lie, and count the dot products of routing. Nothing is scanned."""
    wanted = np.unique(near_QK).tolist()
    names = pa.array([f"s{one:010d}" for one in wanted])
    leaves: dict[int, set[int]] = {one: set() for one in wanted}
    for shard in leaf_map.manifest.shards:
        table = leaf_map.read(shard, ["doc_id", "leaf"], verify=False)
        table = table.filter(pa.compute.is_in(table["doc_id"], names))
        for name, leaf in zip(table["doc_id"].to_pylist(), table["leaf"].to_pylist(), strict=True):
            leaves[int(name[1:])].add(leaf)
    for beam in beams(router.n_leaves):
        probed_QB = router.choose(Encoded(query_QM), beam)
        reached = [
            np.mean([bool(leaves[one] & own) for one in near])
            for near, own in zip(near_QK.tolist(), map(set, probed_QB.tolist()), strict=True)
        ]
        if np.mean(reached) >= RECALL:
            return {"beam": beam, "routing": router.multiply_adds(beam) / router.dimension}
    raise RuntimeError(f"{RECALL:.0%} of the nearest documents are never reached")


def latency(
    router: LearnedIvf, leaves: LeafScan, documents: int, query_QM: Floats, near_QK: Ints, beam: int
) -> dict[str, float]:
    """Recall of the exact ten, documents compared, and milliseconds a query, alone and in batches.

    Times are medians, once all was asked before.
    """

    def ask(part_QM: Floats) -> list[Answer]:
        leaves_QB = router.choose(Encoded(part_QM), beam)
        return answers(leaves.scan(part_QM, leaves_QB, K), leaves_QB, documents, K)

    def milliseconds(batch: int) -> float:
        batches = (query_QM[begin : begin + batch] for begin in range(0, len(query_QM), batch))
        return float(np.median([1e3 * timed(partial(ask, own)) / len(own) for own in batches]))

    asked = ask(query_QM)
    found = [{int(hit.id[1:]) for hit in answer.hits} for answer in asked]
    recall = np.mean([len(own & set(near)) / K for own, near in zip(found, near_QK.tolist(), strict=True)])
    visited = float(np.mean([answer.documents for answer in asked]))
    return {"visited": visited, "recall": float(recall), "batch": milliseconds(BATCH), "alone": milliseconds(1)}


def measure(documents: int, workdir: Path, *, keep: bool) -> dict[str, Any]:
    """Carry out all stages at one size, then measure what a query costs."""
    say(f"{documents:,} synthetic vectors")
    folder = workdir / str(documents)
    stages, spec = Stages(folder), leaf_maps.job("scale", folder)
    with stages.of("synthesise", "corpus", "vectors"):
        corpus, vectors = synthetic(folder, documents)
    with stages.of("leaves", "model"):
        made = model(folder, spec, documents)
    with stages.of("index", "index"):
        index = publish(folder, "index", {}, lambda attempt: build(Here(), spec, corpus, vectors, made, attempt))
    with stages.of("verify"):
        verify(index.root)
    leaf_map = LeafMap.open(index.root)
    manifest, router = leaf_map.manifest, open_router(made.local("router"))
    assert isinstance(router, LearnedIvf)
    with stages.of("neighbours"):
        query_QM, near_QK = queries(documents)
        costs = work(router, leaf_map, query_QM, near_QK)
    os.environ["RAYHIER_CACHE"] = str(folder / "cache")
    leaves = LeafScan.mapped(leaf_map)
    with stages.of("map", "cache"):
        leaves.open()
    with stages.of("search"):
        answered = latency(router, leaves, documents, query_QM, near_QK, int(costs["beam"]))
    assert manifest.documents == documents
    assert sum(manifest.counts) == sum(shard.rows for shard in manifest.shards)
    if not keep:
        shutil.rmtree(folder)
    return {
        "documents": documents,
        "rows": manifest.rows,
        "leaves": len(manifest.counts),
        "imbalance": balance(np.array(manifest.counts))["imbalance"],
        "shards": len(manifest.shards),
        "bytes": sum(file.bytes for file in manifest.files),
        "took": stages.took,
        **costs,
        **answered,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Table of the measures, a column for each size, and how they grow."""
    cells: dict[str, Callable[[dict[str, Any]], str]] = {
        "rows, leaves, shards": lambda row: f"{row['rows']:,}, {row['leaves']:,}, {row['shards']}",
        "imbalance": lambda row: f"{row['imbalance']:.2f}",
        **{f"{name}: s, largest process, all, GB": partial(shown, name) for name in rows[0]["took"]},
        "index, µs a document": lambda row: f"{1e6 * row['took']['index']['seconds'] / row['documents']:.0f}",
        "bytes a document": lambda row: f"{row['bytes'] / row['documents']:.0f}",
        f"leaves visited for {RECALL:.0%} of the {K} nearest": lambda row: f"{row['beam']:,}",
        "documents compared": lambda row: f"{row['visited']:,.0f}",
        "routing, in rows": lambda row: f"{row['routing']:,.0f}",
        f"recall@{K} found": lambda row: f"{row['recall']:.3f}",
        "ms a query, alone": lambda row: f"{row['alone']:.2f}",
        f"ms a query, in batches of {BATCH}": lambda row: f"{row['batch']:.2f}",
    }
    head = ["documents", *(f"{row['documents']:,}" for row in rows)]
    lines = tables.table(head, ([name, *map(cell, rows)] for name, cell in cells.items()))
    if len(rows) > 1:
        sizes = np.log([row["documents"] for row in rows])
        powers = {name: np.polyfit(sizes, np.log(values), 1)[0] for name, values in growing(rows).items()}
        asked = f"(asked of the first: at most N^{GROWTH})"
        lines += ["", *(f"{name}: grows as N^{power:.2f} {asked}" for name, power in powers.items())]
    last = rows[-1]
    times = BILLION / last["documents"]
    lines.append(
        f"a billion, at the rate of the last column: {times * last['took']['index']['seconds'] / 3600:,.0f} h "
        f"of these two cores, {times * last['bytes'] / 1e12:.1f} TB"
    )
    return "\n".join(lines)


def shown(stage: str, row: dict[str, Any]) -> str:
    """Seconds and gigabytes of one stage."""
    took = row["took"][stage]
    return f"{took['seconds']:.0f}, {took['process'] / 1e9:.2f}, {took['total'] / 1e9:.2f}"


def growing(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Measures that grow with the number of documents, by name."""
    return {
        "documents compared + routing": [row["visited"] + row["routing"] for row in rows],
        "ms a query, alone": [row["alone"] for row in rows],
        f"ms a query, batches of {BATCH}": [row["batch"] for row in rows],
    }


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw work and latency against the number of documents, beside the required growth."""
    sizes = [row["documents"] for row in rows]
    with plot(path, 2, (9, 3.8)) as (work_axes, time_axes):
        for name, values in growing(rows).items():
            axes = time_axes if name.startswith("ms") else work_axes
            axes.plot(sizes, values, marker="o", label=name)
        for axes in (work_axes, time_axes):
            first = np.asarray(axes.lines[0].get_ydata())[0]
            axes.plot(sizes, [first * (n / sizes[0]) ** GROWTH for n in sizes], ":", color="gray", label=f"N^{GROWTH}")
            axes.set(xscale="log", yscale="log", xlabel="documents")
            axes.legend()
        work_axes.figure.suptitle(f"A query for {RECALL:.0%} of its exact {K} nearest (synthetic vectors)")


def main() -> None:
    """Measure the given sizes one after the other."""
    parser = Options("Measure a leaf map of many synthetic vectors.", "scale")
    parser.add_argument("--documents", type=count, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "results" / "images" / "scale.png")
    parser.add_argument("--keep", action="store_true", help="keep the artifacts")
    given = parser.parse_args()
    set_threads(THREADS)
    rows = []
    for documents in given.documents:
        rows.append(measure(documents, given.workdir, keep=given.keep))
        given.workdir.mkdir(parents=True, exist_ok=True)
        (given.workdir / "scale.json").write_text(json.dumps(rows, indent=1))
        print(table(rows), flush=True)
        if len(rows) > 1:
            draw(rows, given.figure)


if __name__ == "__main__":
    main()
