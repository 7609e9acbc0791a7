"""Measure what the second leaf of documents saves: search two indexes of a collection at the same recall.

    make bench NAME=second_leaf ARGS="WORKDIR WORKDIR"

Each index's beam is the least that finds 95% of the true ten nearest documents, on half of the dev queries. Time and
recall are of the other half, as users call a search. Indexes take turns in each round.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.commands import Options, absolute
from benchmarks.machine import set_threads, timed
from benchmarks.query import documents_of
from benchmarks.search_systems import ladder
from benchmarks.tables import table
from rayhier.arrays import Floats
from rayhier.search.snapshot import Snapshot

K, RECALL, ROUNDS = 10, 0.95, 15


@dataclass(frozen=True)
class Searched:
    """An index with its beam, and the queries to measure."""

    name: str
    index: Snapshot
    beam: int
    query_QM: Floats

    def __call__(self) -> None:
        for query_M in self.query_QM:
            self.index.search(query_M[None], K, self.beam)


def recall(index: Snapshot, query_QM: Floats, true: list[set[str]], beam: int) -> tuple[float, float]:
    """Share of the true ten that a beam finds, and the mean number of documents compared."""
    answers = index.search(query_QM, K, beam)
    found = [len(own & {hit.id for hit in answer.hits}) / K for own, answer in zip(true, answers, strict=True)]
    return float(np.mean(found)), float(np.mean([answer.documents for answer in answers]))


def opened(workdir: Path) -> tuple[Searched, list[str]]:
    """Open an index, choose its beam, and describe it."""
    index, (vector_NM, ids, query_QM) = Snapshot.open(str(workdir)), documents_of(workdir)
    best_QK = np.argsort(-(query_QM @ vector_NM.T), axis=1)[:, :K]
    nearest = [{ids[row] for row in row_K} for row_K in best_QK.tolist()]
    beams = ladder(len(index.manifest.counts))

    def found(place: int) -> float:
        return recall(index, query_QM[::2], nearest[::2], beams[place])[0]

    beam = beams[bisect_left(range(len(beams) - 1), RECALL, key=found)]
    share, compared = recall(index, query_QM[1::2], nearest[1::2], beam)
    rows = f"{index.manifest.rows / len(index):.2f}"
    described = [rows, f"{len(index.manifest.counts):,}", str(beam), f"{share:.3f}", f"{compared:,.0f}"]
    return Searched(str(workdir), index, beam, query_QM[1::2]), described


def main() -> None:
    """Print a row for each index, with the ratio of its time to the first one's."""
    parser = Options("Compare indexes of a collection at the same recall.")
    parser.add_argument("workdirs", type=absolute, nargs="+")
    set_threads(1)
    searched = [opened(workdir) for workdir in parser.parse_args().workdirs]
    taken = {one.name: list[float]() for one, _ in searched}
    for round_ in range(ROUNDS + 1):  # the first warms up
        for one, _ in searched:
            taken[one.name] += [timed(partial(one)) / len(one.query_QM)] if round_ else []
    first, lines = np.array(taken[searched[0][0].name]), []
    for one, described in searched:
        ratio = np.array(taken[one.name]) / first
        low, middle, high = np.percentile(ratio, [2.5, 50, 97.5])
        microseconds = f"{1e6 * np.median(taken[one.name]):,.0f}"
        lines.append([Path(one.name).name, *described, microseconds, f"{middle:.2f} [{low:.2f}, {high:.2f}]"])
    heads = ["index", "rows a document", "leaves", "beam", "of the true 10", "compared", "µs a query", "ratio [95%]"]
    print("\n".join(table(heads, lines)))


if __name__ == "__main__":
    main()
