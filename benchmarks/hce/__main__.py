"""HCE beside contrast and its own ablations, encoder by encoder: `make bench-hce`, which writes docs/hce.md."""

from collections.abc import Sequence

from benchmarks.commands import Options
from benchmarks.hce.bench import Bench, compare
from benchmarks.hce.page import Findings, tables, write_page
from benchmarks.hce.rows import ALONE, BRANCHINGS, LAYERED, PLAIN, ROWS, UNTOUCHED, J, S
from benchmarks.hce.twins import TOLD, near_twins
from benchmarks.hce.twins import lines as twins_lines
from benchmarks.hce.visited import visits
from benchmarks.machine import set_threads

TWINNED = "scifact"
"""The collection whose test queries repeat train queries."""
COLLECTIONS = (TWINNED, "cranfield", "acl_title2abs", "oewn_examples")
FOLDS = 5


def main() -> None:
    """Measure and print; without --folds and --twins write the page too."""
    parser = Options("HCE beside contrast.", "hce", "seeds", "docs")
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    told = "ask N folds of the train queries, not the test"
    parser.add_argument("--folds", type=int, default=0, metavar="N", help=told)
    parser.add_argument("--twins", action="store_true", help="only the table of SciFact's near-twins, and no page")
    given = parser.parse_args()
    set_threads(1)
    if given.twins:
        bench = Bench(TWINNED, given.workdir / TWINNED)
        measured = compare(bench, bench.test, TOLD, range(given.seeds))
        print("\n".join(twins_lines(near_twins(bench, measured))))
        return
    benches = [Bench(name, given.workdir / name) for name in given.collections]
    seeds = range(given.seeds)
    if given.folds:
        for bench in benches:
            print("\n".join(folds(bench, given.folds, seeds)), flush=True)
    else:
        print(write_page([measure(bench, seeds) for bench in benches], given.docs))


def measure(bench: Bench, seeds: Sequence[int]) -> Findings:
    """All that the page tells of one collection's test queries."""
    every = {
        "judged": [UNTOUCHED, *ROWS[bench.name]] if bench.name in ROWS else [],
        "alone": [UNTOUCHED, *ALONE] if bench.name in ("scifact", "cranfield") else [],
        "layered": [UNTOUCHED, *LAYERED[bench.name]] if bench.name in LAYERED else [],
        "branchings": [PLAIN, *BRANCHINGS] if bench.name == "acl_title2abs" else [],
    }
    told = {
        kind: compare(bench, bench.test, rows, [0] if kind == "layered" else seeds)
        for kind, rows in every.items()
        if rows
    }
    about = f"{len(bench.collection.documents.ids):,} documents, {len(bench.test.queries):,} test queries"
    visited = visits(bench, seeds) if bench.name == "oewn_examples" else None
    twins = near_twins(bench, told["judged"]) if bench.name == TWINNED else None
    return Findings(bench.name, about, told, visited, twins)


def folds(bench: Bench, count: int, seeds: Sequence[int]) -> list[str]:
    """Tables of folds of the train queries, one after the other."""
    page = []
    for split in bench.folds(FOLDS, count):
        told = compare(bench, split, [UNTOUCHED, PLAIN, S, *([J] if bench.spans else [])], seeds)
        page += [f"### {bench.name}, {split.name}", "", *tables(told, PLAIN), ""]
    return page


if __name__ == "__main__":
    main()
