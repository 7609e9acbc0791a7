"""Compare searches of the same vectors by rayhier and by other systems, each at the same recall.

The vectors are those of the trained encoder. `--times` adds moved copies of the vectors (benchmarks/vectors.py). A
system's effort is the least that finds 95% of the true ten nearest documents of dev queries. Among several ladders of
efforts, the fastest on dev is taken. Recall and rates are then of the test queries. Systems take turns in each round.

Times end when an application has ids. `rayhier` is the trained index as users open it. Its results have titles and
texts too. The other systems find numbers, and look each id up in a list. `rayhier, leaves` is the scan alone.
"""

import argparse
import gc
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.collection import BUILT, RUNS, place, run
from benchmarks.commands import Options, absolute, clock
from benchmarks.machine import medians, peak_memory, set_threads, timed
from benchmarks.search_systems import (
    Answer,
    K,
    Ours,
    System,
    faiss_graph,
    faiss_lists,
    lance,
    lorann,
    product,
    scann,
    symphony,
    vamana,
)
from benchmarks.tables import UNKNOWN, table
from benchmarks.vectors import Asked, harder
from rayhier.arrays import Floats, Values
from rayhier.dataset.queries import load_split
from rayhier.model.layers import normalized
from rayhier.progress import say
from rayhier.search.index import open_leaf_map
from rayhier.search.routing.routes import Model
from rayhier.storage import columns, current
from rayhier.storage.paths import locate

RECALL, ROUNDS = 0.95, 5
STAGES = (*BUILT, "test")
"""Stages of the default index, with the test queries."""
ALONE = 200
BATCHES = (1, 64, 1_000)
CONTROL = "faiss HNSW"
PRODUCTS = ("cosine", "angular", "normalized", "ip")
"""Distances of files that an inner product orders."""


def least(system: System, asked: Asked, vector_NM: np.ndarray) -> Any:
    """The effort that finds 95% of the dev queries' true ten, of the ladder that does so in the least time alone.

    Efforts that ask more of both knobs than another are left out; the others take turns.
    """
    reached, query_QM = [], asked.query_QM
    for efforts in system.efforts:

        def found_by(step: int, efforts: Sequence[Any] = efforts) -> float:
            return asked.recall(system.search(query_QM, efforts[step]), vector_NM)

        step = bisect_left(range(len(efforts) - 1), RECALL, key=found_by)
        if found_by(step) >= RECALL:
            reached.append(efforts[step])
    kept = [effort for effort in reached if not any(other != effort and dearer(effort, other) for other in reached)]
    if len(kept) < 2:
        return kept[0] if kept else system.efforts[-1][-1]
    alone = {str(effort): partial(one_by_one, system.search, query_QM[:ALONE], effort, 1) for effort in kept}
    seconds = medians(alone, ROUNDS)
    return min(kept, key=lambda effort: seconds[str(effort)])


def dearer(effort: Any, other: Any) -> bool:
    """True if an effort of two knobs turns neither less than another."""
    return all(knob >= others for knob, others in zip(effort, other, strict=True))


def one_by_one(answer: Answer, query_QM: Floats, effort: Any, batch: int) -> None:
    """Search queries in batches."""
    for begin in range(0, len(query_QM), batch):
        answer(query_QM[begin : begin + batch], effort)


def rates(
    systems: list[tuple[System, Any]], query_QM: Floats, ids: Sequence[str], batch: int, threads: int
) -> dict[str, Values]:
    """Queries a second of each system, in rounds that take turns."""
    some_QM, rates_of = query_QM[: ALONE if batch == 1 else len(query_QM)], dict[str, list[float]]()
    set_threads(threads)
    for round_ in range(ROUNDS + 1):  # the first warms up
        for system, effort in systems:
            seconds = timed(partial(one_by_one, system.answering(ids), some_QM, effort, batch))
            if round_:
                rates_of.setdefault(system.name, []).append(len(some_QM) / seconds)
    set_threads(2)
    return {name: np.array(values) for name, values in rates_of.items()}


def vectors(workdir: Path, *splits: str) -> tuple[str, list[str], Floats, list[Floats]]:
    """Unique name of a workdir's index, ids and trained vectors of its documents, and vectors of queries by split."""
    root = locate(str(workdir))
    now = current.read(root)
    leaf_map, model = open_leaf_map(root, now), Model.of_workdir(root, now)
    ids, parts = list[str](), []
    for shard in leaf_map.manifest.shards:
        rows = leaf_map.read(shard, ["doc_id", "rank", "vector"])
        first_N = rows["rank"].to_numpy() == 0
        ids += rows["doc_id"].filter(pa.array(first_N)).to_pylist()
        parts.append(columns.matrix(rows["vector"])[first_N])
    corpus, base, test = (current.artifact(root, now, kind) for kind in ("corpus", "vectors", "test"))
    queries = []
    for split in splits:
        judged = load_split(split, corpus, base, test)
        queries.append(model.encode_stored(judged.vector_QM, partial(getattr, judged, "texts"), "query").numpy)
    return f"{now.spec.name}-{now.artifacts['index']}", ids, np.concatenate(parts), queries


def of_file(path: Path) -> tuple[str, list[str], Floats, list[Floats]]:
    """Read a file of VIBE or ann-benchmarks as `vectors` does. Every second test query is a dev query.

    VIBE (E. Jääsaari et al., 2025) has for instance yahoo-minilm-384-normalized.hdf5.
    """
    import h5py

    with h5py.File(path) as file:
        distance = file.attrs["distance"]
        vector_NM, query_QM = (np.asarray(file[name], np.float32) for name in ("train", "test"))
    if distance not in PRODUCTS:
        sys.exit(f"{path}: got distance {distance!r}; allowed: {', '.join(PRODUCTS)}")
    if distance in ("cosine", "angular"):
        vector_NM, query_QM = normalized(vector_NM), normalized(query_QM)
    ids = [f"{number:09d}" for number in range(len(vector_NM))]
    return path.stem, ids, vector_NM, [query_QM[::2], query_QM[1::2]]


def main() -> None:
    """Print the table."""
    parser = Options("Compare searches of the same vectors.", "search")
    parser.add_argument(
        "--index", type=absolute, help="workdir of an index (default: oewn_examples by the shipped spec)"
    )
    parser.add_argument("--hdf5", type=absolute, help="file of VIBE or ann-benchmarks, in place of an index")
    parser.add_argument("--times", type=int, default=1, help="multiple of the documents, by harder copies (default 1)")
    parser.add_argument("--lists", type=int, help="lists of every system (default: 4 times the root of the documents)")
    parts = "names of systems, or parts of names, divided by semicolons"
    parser.add_argument("--only", type=named, default=set(FAMILIES), help=parts)
    parser.add_argument("--without", type=named, default=set(), help=f"{parts}: left out")
    given = parser.parse_args()
    tell, index = clock(), given.index or RUNS / "search-index"
    if given.hdf5 is None and given.index is None:
        run(place("oewn_examples", index), stages=STAGES)
    read = vectors(index, "dev", "test") if given.hdf5 is None else of_file(given.hdf5)
    name, ids, vector_NM, (dev_QM, test_QM) = read
    folder = given.workdir / f"{name}-{given.times}"
    folder.mkdir(parents=True, exist_ok=True)
    every = np.load(folder / "vectors.npy", mmap_mode="r") if (folder / "vectors.npy").exists() else None
    if every is None:
        every = harder(vector_NM, given.times, folder / "vectors.npy")
    lists = given.lists or 1 << round(float(np.log2(4 * len(every) ** 0.5)))
    tell(f"{name}, {len(every):,} vectors, {lists:,} lists")
    set_threads(2)
    dev, test = (Asked.of(query_QM, every, K) for query_QM in (dev_QM, test_QM))
    chosen = []
    families = [family for family in FAMILIES if family in given.only - given.without]
    ids += [f"{number:09d}" for number in range(len(ids), len(every))]
    whole = index if given.times == 1 and given.hdf5 is None else None
    for system in systems_of(families, Source(every, lists, folder, ids, whole)):
        effort = least(system, dev, every)
        tell(f"{system.name}: {effort}, built in {system.seconds:.0f} s, {peak_memory() / 1e9:.1f} GB")
        chosen.append((system, effort))
        gc.collect()
    ours = [(system, effort) for system, effort in chosen if system.threads]
    measured = {
        (batch, threads): rates(ours, test_QM, ids, batch, threads)
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


@dataclass(frozen=True)
class Source:
    """What systems are built from: vectors, a number of lists, and a folder for files."""

    vector_NM: np.ndarray
    lists: int
    folder: Path
    ids: Sequence[str]
    workdir: Path | None
    """Workdir of the index that has exactly these vectors. None if there is none."""


FAMILIES: dict[str, Callable[[Source], Iterable[System]]] = {
    CONTROL: lambda source: faiss_graph(source.vector_NM),
    "faiss HNSW, float16": lambda source: faiss_graph(source.vector_NM, half=True),
    "faiss IVF": lambda source: faiss_lists(source.vector_NM, source.lists),
    "scalable-vs": lambda source: vamana(source.vector_NM),
    "SymphonyQG": lambda source: symphony(source.vector_NM),
    "lorann": lambda source: lorann(source.vector_NM, source.lists),
    "scann-core": lambda source: scann(source.vector_NM, source.lists),
    "lance": lambda source: lance(source.vector_NM, source.lists, source.folder),
    "rayhier leaves": lambda source: [Ours(source.vector_NM, source.lists, source.folder).leaves()],
    "rayhier product": lambda source: [product(source.workdir, source.ids)] if source.workdir else [],
}


def named(text: str) -> set[str]:
    """Families of systems that are called so, or have such a part in their name; ArgumentTypeError where none has."""
    families = set[str]()
    for part in filter(None, text.split(";")):
        meant = {part} if part in FAMILIES else {name for name in FAMILIES if part in name}
        if not meant:
            raise argparse.ArgumentTypeError(f"{part}: no such system; there are {'; '.join(FAMILIES)}")
        families |= meant
    return families


def systems_of(families: Iterable[str], source: Source) -> Iterator[System]:
    """The systems of these families, each built when its turn comes; those whose package is missing are left out."""
    for name in families:
        try:
            yield from FAMILIES[name](source)
        except ModuleNotFoundError as error:
            say(f"{name}: left out, {error.name} is not installed")


if __name__ == "__main__":
    main()
