"""Documents visited against recall, every system beside its controls: `make bench-quality`."""

from benchmarks.collection import ROOT
from benchmarks.commands import Options
from benchmarks.machine import THREADS, set_threads
from benchmarks.quality.bench import COLLECTIONS, Bench, complete_bench
from benchmarks.quality.page import write_page


def main() -> None:
    """Measure the given collections, then write the page of all that are complete."""
    parser = Options("Documents visited against recall, every system beside its controls.", "quality", "seeds")
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    parser.add_argument("--split", choices=("test", "dev"), default="test", help="dev: for work on this file itself")
    parser.add_argument("--threads", type=int, default=THREADS)
    given = parser.parse_args()
    set_threads(given.threads)
    for name in given.collections:
        Bench(name, given.workdir, given.seeds, given.split).measure()
    complete = [complete_bench(name, given.workdir, given.seeds, given.split) for name in COLLECTIONS]
    folder = ROOT / "docs" if given.split == "test" else given.workdir
    print(write_page([bench.results() for bench in complete if bench is not None], folder))


if __name__ == "__main__":
    main()
