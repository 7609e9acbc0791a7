"""Sizes of leaves by the clock: `python -m benchmarks.leaf_size`.

The same vectors in k-means leaves of several sizes, in codes. For each size the effort is the least that finds 95% of
the true ten nearest documents, of several numbers of rows to score again the one that takes the least time. All is
asked of dev queries, since the table chooses a default.
"""

import gc
from dataclasses import replace

import numpy as np

from benchmarks.collection import BUILT, RUNS, place, run
from benchmarks.commands import Options, absolute, clock
from benchmarks.harder import Asked, harder
from benchmarks.machine import set_threads
from benchmarks.search import BATCHES, least, rates, vectors
from benchmarks.search_systems import K, Ours
from benchmarks.tables import table

ROOTS = (1, 2, 4, 8, 16, 25)
"""Leaves for each unit of the square root of the number of documents."""
FEWEST_LEAVES = 1_024
"""Fewest leaves: codes of fewer do not pay before the leaves."""


def main() -> None:
    """Print the table."""
    parser = Options("Sizes of leaves by the clock, on dev.", "search")
    parser.add_argument("--index", type=absolute, help="workdir of an index; default: oewn_examples as it is shipped")
    parser.add_argument("--times", type=int, default=1, help="so many times the documents, harder copies added")
    parser.add_argument("--leaves", type=int, nargs="+", help="numbers of leaves (default: 1 to 25 times the root)")
    given = parser.parse_args()
    say, index = clock(), given.index or RUNS / "search-index"
    if given.index is None:
        run(place("oewn_examples", index), stages=BUILT)
    name, vector_NM, (dev_QM,) = vectors(index, "dev")
    folder = given.workdir / f"{name}-{given.times}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "vectors.npy"
    every = np.load(path, mmap_mode="r") if path.exists() else harder(vector_NM, given.times, path)
    counts = given.leaves or [round(roots * len(every) ** 0.5) for roots in ROOTS]
    set_threads(2)
    dev, systems = Asked.of(dev_QM, every, K), []
    for leaves in counts:
        if leaves < FEWEST_LEAVES:
            continue
        system = Ours(every, leaves, folder).leaves()
        set_threads(1)
        effort = least(system, dev, every)
        set_threads(2)
        systems.append((replace(system, name=f"{leaves:,}"), effort))
        say(f"{leaves:,} leaves: {effort}, built in {system.seconds:.0f} s")
        gc.collect()
    measured = {batch: rates(systems, dev_QM, batch, 1) for batch in BATCHES}
    lines = []
    for system, effort in systems:
        recall = dev.recall(system.search(dev_QM, effort), every)
        per_second = [f"{np.median(rate[system.name]):,.0f}" for rate in measured.values()]
        rows = len(every) / int(system.name.replace(",", ""))
        lines.append([system.name, f"{rows:.0f}", *map(str, effort), f"{recall:.3f}", *per_second])
    print(f"\n{name}: {len(every):,} vectors of {every.shape[1]} numbers, {len(dev_QM):,} dev queries, one thread\n")
    head = ["alone" if batch == 1 else f"batches of {batch:,}" for batch in BATCHES]
    print("\n".join(table(["leaves", "rows a leaf", "visited", "scored again", f"of the true {K}", *head], lines)))


if __name__ == "__main__":
    main()
