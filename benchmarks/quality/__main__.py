"""Measure documents visited against recall, for every system and its baselines: `make bench NAME=quality`."""

from benchmarks.collection import ROOT
from benchmarks.commands import Options
from benchmarks.machine import THREADS, set_threads
from benchmarks.quality.bench import COLLECTIONS, Bench
from benchmarks.quality.page import write_page


def main() -> None:
    """Measure the given collections, then write the page of all that are complete."""
    parser = Options("Measure documents visited against recall, for systems and baselines.", "quality", "seeds")
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    parser.add_argument("--split", choices=("test", "dev"), default="test", help="split to measure")
    parser.add_argument("--threads", type=int, default=THREADS)
    given = parser.parse_args()
    set_threads(given.threads)
    for name in given.collections:
        Bench(name, given.workdir, given.seeds, given.split).measure()
    results = []
    for name in COLLECTIONS:  # with the most seeds that every system is measured with
        benches = (Bench(name, given.workdir, count, given.split) for count in range(given.seeds, 0, -1))
        complete = next((bench for bench in benches if bench.is_complete), None)
        results += [complete.results()] if complete else []
    folder = ROOT / "docs" / "results" if given.split == "test" else given.workdir
    print(write_page(results, folder))


if __name__ == "__main__":
    main()
