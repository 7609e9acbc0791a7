"""HCE beside contrast and its own ablations, encoder by encoder: `make bench-hce`, which writes docs/hce.md.

Every row is a head on all-MiniLM-L6-v2's vectors, embedded once, titles and spans included; three seeds; what each
query found, and paired 95% intervals from resamples of the queries. Settings were chosen on folds of the train queries
(`--folds`), the test split is read once a row. What is measured is kept, so that the benchmark goes on.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.collection import ROOT, RUNS
from benchmarks.hce import visited
from benchmarks.hce.bench import Bench, Row, Split
from benchmarks.hce.page import Comparison, compare, lines
from benchmarks.hce.rows import ALONE, BRANCHINGS, PLAIN, ROWS, UNTOUCHED, J, S
from benchmarks.machine import set_threads

COLLECTIONS = ("scifact", "cranfield", "acl_title2abs", "oewn_examples")
FOLDS = 5
MEASURES = {"acl_title2abs": ("R@1", "R@100"), "oewn_examples": ("nDCG@10", "R@1", "R@100")}
USUAL = ("nDCG@10", "R@100")


INTRODUCTION = """# HCE, measured

`train: {type: hce}` teaches the encoder by a tree over the documents ("Hierarchical Corpus Encoder: Fusing
Generative Retrieval and Dense Indices"): spherical k-means puts N documents below N/8 nodes, these below N/64,
up to one root. A query learns to tell the nodes above its answer from their siblings, by trained centroids, and
the answer from documents beside it. **S** learns from judged queries, **U** from titles and spans of the
documents alone, **J** from both. *As printed* is the paper's loss (`form: paper`) and optimizer; *as shipped*
differs by one contrast with two mined negatives a query, a hierarchy that weighs .1, an anchor that keeps
documents where the base encoder has them, and for U and J a head that starts whitened: directions in which
titles and spans differ from their documents count less.

`make bench-hce`: a head on all-MiniLM-L6-v2's vectors, exact search. Means over seeds ± half their range;
points above the control with 95% intervals from paired resamples of the queries. *New answers* are queries none
of whose answers is judged for a train query. Settings were chosen on folds of SciFact's and oewn_examples'
train queries ([LOG.md](LOG.md)); Cranfield's are SciFact's; dev picked the epochs; the test queries were read
once a row, but for the rows as printed, whose learning rate was too low at first.
""".splitlines()


def main() -> int:
    """Measure and print; without --folds write the page too."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hce", description="HCE beside contrast.")
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    parser.add_argument("--seeds", type=int, default=3, help="how many (default 3)")
    parser.add_argument(
        "--folds", type=int, default=0, metavar="N", help="ask N folds of the train queries, not the test"
    )
    parser.add_argument("--workdir", type=Path, default=RUNS / "hce")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the page goes")
    given = parser.parse_args()
    set_threads(1)
    pages: list[str] = [""]
    for name in given.collections:
        bench = Bench(name, given.workdir / name)
        found = folds(bench, given.folds, range(given.seeds)) if given.folds else tested(bench, range(given.seeds))
        print("\n".join(found), flush=True)
        pages += found
    if not given.folds:
        (given.docs / "hce.md").write_text("\n".join([*INTRODUCTION, *pages]) + "\n")
    return 0


def tested(bench: Bench, seeds: Sequence[int]) -> list[str]:
    """Tables of one collection's test queries."""
    about = f"{len(bench.collection.documents.ids):,} documents, {len(bench.test.queries):,} test queries"
    page = [f"### {bench.name}", "", about, ""]
    if bench.collection.examples.same:
        rows = [UNTOUCHED, *ALONE]
        return [*page, *tables(timed(bench, bench.test, rows, seeds), rows, UNTOUCHED)]
    rows = [UNTOUCHED, *ROWS[bench.name]]
    alone = ALONE if bench.name == "scifact" else []
    told = timed(bench, bench.test, [*rows, *alone], seeds)
    page += tables(told, rows, PLAIN, MEASURES.get(bench.name, USUAL))
    if alone:
        page += ["", *tables(told, [UNTOUCHED, *alone], UNTOUCHED)]
    if bench.name == "acl_title2abs":
        told = timed(bench, bench.test, [PLAIN, *BRANCHINGS], seeds)
        page += ["", *lines(told, [PLAIN, *BRANCHINGS], PLAIN, ("R@1", "R@5", "R@10", "R@100"))]
    if bench.name == "oewn_examples":
        page += ["", *visited.lines(visited.visits(bench, seeds, bench.results / "trained"))]
    return page


def folds(bench: Bench, count: int, seeds: Sequence[int]) -> list[str]:
    """Tables of folds of the train queries, one after the other."""
    page = []
    for split in bench.folds(FOLDS, count):
        rows = [UNTOUCHED, PLAIN, S, *([J] if bench.spans else [])]
        page += [f"### {bench.name}, {split.name}", "", *tables(timed(bench, split, rows, seeds), rows, PLAIN), ""]
    return page


def timed(bench: Bench, split: Split, rows: Sequence[Row], seeds: Sequence[int]) -> Comparison:
    """Measure rows one by one and say when."""
    began = time.monotonic()
    for row in rows:
        compare(bench, split, [row], seeds)
        print(f"{time.monotonic() - began:6.0f} s  {bench.name}, {split.name}: {row.name}", file=sys.stderr, flush=True)
    return compare(bench, split, rows, seeds)


def tables(told: Comparison, rows: Sequence[Row], control: Row, measures: Sequence[str] = USUAL) -> list[str]:
    """A table of all queries, and one of those with new answers."""
    found: list[str] = []
    for group, own_Q in told.groups.items():
        found += [f"**{group}** ({own_Q.sum()} queries, {told.seeds} seeds)", ""]
        found += [*lines(told, rows, control, measures, group), ""]
    return found[:-1]


if __name__ == "__main__":
    sys.exit(main())
