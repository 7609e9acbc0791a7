"""Measure an index that changes during searches, and write results/live.md: `python -m benchmarks.live WORKDIR`."""

from collections.abc import Sequence

from benchmarks.commands import Options, absolute
from benchmarks.live import changes, ingest, page, replay

PARTS = ("changes", "ingest", "replay")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure some parts, by default all, and write the page of all figures that are there."""
    parser = Options("Measure an index that changes during searches.", "live", "docs")
    parser.add_argument("index", type=absolute, help="workdir of an index, which is copied")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="parts to measure (default: all)")
    parser.add_argument(
        "--runs", nargs="+", default=["1"], help="numbers of the runs of changes, and of each system's ingest"
    )
    parser.add_argument("--replayed", type=absolute, help="workdir of the replay's index (default: INDEX)")
    parser.add_argument("--rivals", help="interpreter with numpy, lancedb and qdrant-edge-py")
    options = parser.parse_args(arguments)
    index = [str(options.index), "--workdir", str(options.workdir)]
    if "changes" in options.parts:
        for run in options.runs:
            changes.main([*index, "--run", run])
    if "ingest" in options.parts:
        rivals = ["--rivals", options.rivals] if options.rivals else []
        for trial in ingest.TRIALS:
            ingest.main([*index, "--trial", trial, "--runs", *options.runs, *rivals])
    if "replay" in options.parts:
        replay.main([str(options.replayed or options.index), *index[1:]])
    print(page.write(options.workdir, options.docs))


if __name__ == "__main__":
    main()
