"""Searching the same vectors with rayhier, faiss, hnswlib, ScaNN and LanceDB: `make bench-search`.

The vectors are an index's documents as trained, and with `--times` moved copies of them (benchmarks/harder.py). Each
system's effort is the least that finds 95% of the true ten nearest documents of the dev queries; of several ladders of
efforts the one that is fastest on dev. Recall and rates are then of the test queries, in rounds that take turns.
"""

import argparse
import gc
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.collection import BUILT, RUNS, place, run
from benchmarks.commands import Options, absolute, clock
from benchmarks.harder import Asked, harder
from benchmarks.machine import peak_memory, set_threads, timed
from benchmarks.search_systems import (
    K,
    Ours,
    System,
    faiss_codes,
    faiss_graph,
    faiss_lists,
    hnswlib_graph,
    lance,
    lorann,
    scann,
    usearch_graph,
    vamana,
)
from benchmarks.tables import UNKNOWN, table
from rayhier.arrays import Floats, Values
from rayhier.dataset.queries import load_split
from rayhier.search.index import open_leaf_map
from rayhier.search.model import Model
from rayhier.storage import columns, current
from rayhier.storage.paths import locate

RECALL, ROUNDS = 0.95, 5
ALONE = 200
BATCHES = (1, 64, 1_000)
CONTROL = "faiss HNSW"


def least(system: System, asked: Asked, vector_NM: np.ndarray) -> Any:
    """The effort that finds 95% of the dev queries' true ten, of the ladder that does so in the least time alone."""
    reached, query_QM = [], asked.query_QM
    for efforts in system.efforts:

        def found_by(step: int, efforts: Sequence[Any] = efforts) -> float:
            return asked.recall(system.search(query_QM, efforts[step]), vector_NM)

        step = bisect_left(range(len(efforts) - 1), RECALL, key=found_by)
        if found_by(step) >= RECALL:
            alone = partial(one_by_one, system, query_QM[:ALONE], efforts[step], 1)
            alone()
            reached.append((timed(alone), efforts[step]))
    return min(reached)[1] if reached else system.efforts[-1][-1]


def one_by_one(system: System, query_QM: Floats, effort: Any, batch: int) -> None:
    """Search queries in batches."""
    for begin in range(0, len(query_QM), batch):
        system.search(query_QM[begin : begin + batch], effort)


def rates(systems: list[tuple[System, Any]], query_QM: Floats, batch: int, threads: int) -> dict[str, Values]:
    """Queries a second of each system, in rounds that take turns."""
    some_QM, rates_of = query_QM[: ALONE if batch == 1 else len(query_QM)], dict[str, list[float]]()
    set_threads(threads)
    for round_ in range(ROUNDS + 1):  # the first warms up
        for system, effort in systems:
            seconds = timed(partial(one_by_one, system, some_QM, effort, batch))
            if round_:
                rates_of.setdefault(system.name, []).append(len(some_QM) / seconds)
    set_threads(2)
    return {name: np.array(values) for name, values in rates_of.items()}


def vectors(workdir: Path) -> tuple[str, Floats, Floats, Floats]:
    """Name of a workdir's index, its documents' trained vectors, and its dev and test queries'."""
    root = locate(str(workdir))
    now = current.read(root)
    leaf_map, model = open_leaf_map(root, now), Model.of_workdir(root, now)
    parts = []
    for shard in leaf_map.manifest.shards:
        rows = leaf_map.read(shard, ["rank", "vector"])
        parts.append(columns.matrix(rows["vector"])[rows["rank"].to_numpy() == 0])
    corpus, base, test = (current.artifact(root, now, kind) for kind in ("corpus", "vectors", "test"))
    queries = []
    for split in ("dev", "test"):
        judged = load_split(split, corpus, base, test)
        queries.append(model.encode_stored(judged.vector_QM, partial(getattr, judged, "texts")).numpy)
    return now.spec.name, np.concatenate(parts), queries[0], queries[1]


def main() -> None:
    """Print the table."""
    parser = Options("Searching the same vectors.", "search")
    parser.add_argument(
        "--index", type=absolute, help="workdir of an index; default: oewn_examples by the shipped spec"
    )
    parser.add_argument("--times", type=int, default=1, help="so many times the documents, harder copies added")
    parser.add_argument("--lists", type=int, help="lists of every system (default: 4 times the root of the documents)")
    parser.add_argument("--only", default="", help="names of systems, parts of them, divided by commas")
    parser.add_argument("--without", default="", help="names of systems to leave out")
    given = parser.parse_args()
    say, index = clock(), given.index or RUNS / "search-index"
    if given.index is None:
        run(place("oewn_examples", index), stages=BUILT)
    name, vector_NM, dev_QM, test_QM = vectors(index)
    folder = given.workdir / f"{name}-{given.times}"
    folder.mkdir(parents=True, exist_ok=True)
    every = np.load(folder / "vectors.npy", mmap_mode="r") if (folder / "vectors.npy").exists() else None
    if every is None:
        every = harder(vector_NM, given.times, folder / "vectors.npy")
    lists = given.lists or 1 << round(float(np.log2(4 * len(every) ** 0.5)))
    say(f"{name}, {len(every):,} vectors, {lists:,} lists")
    set_threads(2)
    dev, test = (Asked.of(query_QM, every, K) for query_QM in (dev_QM, test_QM))
    chosen = []
    for system in systems_of(given, every, lists, folder):
        effort = least(system, dev, every)
        say(f"{system.name}: {effort}, built in {system.seconds:.0f} s, {peak_memory() / 1e9:.1f} GB")
        chosen.append((system, effort))
        gc.collect()
    ours = [(system, effort) for system, effort in chosen if system.threads]
    measured = {
        (batch, threads): rates(ours, test_QM, batch, threads)
        for threads in (1, 2)
        for batch in BATCHES
        if batch * threads != 2
    }
    lines = []
    for system, effort in chosen:
        share = test.recall(system.search(test_QM, effort), every)
        cells = [system.name, str(effort).strip("()"), f"{share:.3f}"]
        cells += [cell(rate.get(system.name), rate.get(CONTROL)) for rate in measured.values()]
        lines.append([*cells, f"{system.resident / 1e6:,.0f}", f"{system.seconds:,.0f}"])
    dimension = every.shape[1]
    print(f"\n{name}: {len(every):,} vectors of {dimension} numbers, {lists:,} lists, {len(test_QM):,} test queries\n")
    head = [
        f"{'alone' if batch == 1 else f'batches of {batch:,}'}, {threads} thread{'s' * (threads > 1)}"
        for batch, threads in measured
    ]
    print("\n".join(table(["system", "effort", f"of the true {K}", *head, "MB in memory", "built, s"], lines)))


def cell(rate: Values | None, control: Values | None) -> str:
    """Median queries a second, and the median of its ratios to the control's in the same rounds."""
    if rate is None:
        return UNKNOWN
    ratio = "" if control is None else f" ({np.median(rate / control):.2f}x)"
    return f"{np.median(rate):,.0f}{ratio}"


def systems_of(given: argparse.Namespace, vector_NM: np.ndarray, lists: int, folder: Path) -> Iterable[System]:
    """The systems that were asked for, each built when its turn comes."""
    ours: list[Ours] = []

    def own() -> Ours:
        if not ours:
            ours.append(Ours(vector_NM, lists, folder))
        return ours[0]

    families: dict[str, Callable[[], Iterable[System]]] = {
        CONTROL: lambda: faiss_graph(vector_NM),
        "faiss IVF": lambda: faiss_lists(vector_NM, lists),
        "faiss codes": lambda: faiss_codes(vector_NM),
        "hnswlib": lambda: hnswlib_graph(vector_NM),
        "usearch": lambda: usearch_graph(vector_NM),
        "scalable-vs": lambda: vamana(vector_NM),
        "lorann": lambda: lorann(vector_NM, lists),
        "scann": lambda: scann(vector_NM, lists),
        "lance": lambda: lance(vector_NM, lists, folder),
        "rayhier leaves": lambda: [own().leaves()],
        "rayhier codes": lambda: [own().codes()],
    }
    wanted = [part for part in given.only.split(",") if part]
    unwanted = [part for part in given.without.split(",") if part]
    taken = [
        family
        for name, family in families.items()
        if (not wanted or any(part in name for part in wanted)) and not any(part in name for part in unwanted)
    ]
    return chain.from_iterable(family() for family in taken)


if __name__ == "__main__":
    main()
