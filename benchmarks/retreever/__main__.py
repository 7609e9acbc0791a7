"""ReTreever's levels beside adapters, a softmax without a tree and other trees: `make bench-retreever`."""

from collections.abc import Callable

from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads
from benchmarks.retreever import rows
from benchmarks.retreever.attending import Attending
from benchmarks.retreever.attention import Attended
from benchmarks.retreever.bench import Bench, Sized, sized
from benchmarks.retreever.leaves import best_leaf, curve, similar
from benchmarks.retreever.levels import Shortlist, finished, speeds, stored_values
from benchmarks.retreever.page import Findings, told_alike, write_page

COLLECTIONS = ("acl_title2abs", "oewn_examples")
LARGE = "oewn_examples"
"""The collection on which shortlists, speed and attention are measured."""


def main() -> None:
    """Measure, write the page and print it; with --split dev only print what rows find."""
    parser = Options("ReTreever beside its controls.", "retreever", "seeds", "quality", "docs")
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    parser.add_argument("--split", choices=("dev", "test"), default="test", help="dev with --rows")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="train and measure these rows alone, and no page")
    parser.add_argument(
        "--attending", action="store_true", help="only the table of rows that attend to the same tokens"
    )
    given = parser.parse_args()
    set_threads(1)
    report = clock()
    if given.attending:
        bench = Bench(LARGE, given.quality, given.workdir, given.split)
        print("\n".join(told_alike(attend(bench, Attended(bench), report))))
        return
    benches = [Bench(name, given.quality, given.workdir, given.split) for name in given.collections]
    if given.rows:
        for bench in benches:
            asked = [(row, given.seeds) for row in [*rows.CORE, *rows.ONCE] if row.name in given.rows]
            told = sized(bench, asked, report)
            for row, _ in asked:
                values = {size: round(told.mean(row.name, size, "R@10"), 3) for size in told.sizes(row.name)}
                print(f"{bench.name}: {row.name}: R@10 by size {values}", flush=True)
        return
    print(write_page([measured(bench, given.seeds, report) for bench in benches], given.docs))


def measured(bench: Bench, seeds: int, report: Callable[[str], None]) -> Findings:
    """All that the page tells of a collection."""
    once = rows.NEEDED if bench.name == LARGE else rows.ONCE
    told = sized(bench, [*((row, seeds) for row in rows.CORE), *((row, 1) for row in once)], report)
    trees = [rows.SHIPPED, rows.VARIATION, rows.KMEANS, rows.MIXTURES]
    documents = len(bench.collection.documents.ids)
    about = f"{documents:,} documents, {len(bench.queries):,} queries of the {bench.split} split"
    leaves = {row.name: best_leaf(bench, row, 0) for row in (rows.SHIPPED, rows.KMEANS, rows.MIXTURES)}
    curves = {row.name: curve(bench, row, 0) for row in trees} | {"lists of k-means": curve(bench, None, 0)}
    report(f"{bench.name}: leaves")
    similarities = {row.name: similar(bench, row, 0) for row in (rows.SHIPPED, rows.VARIATION, rows.KMEANS)}
    stored = {level: stored_values(bench, rows.SHIPPED, level, 0) for level in (6, 10)}
    report(f"{bench.name}: ancestors and storage")
    if bench.name != LARGE:
        return Findings(bench.name, about, told, leaves, curves, similarities, stored)
    listed = [
        Shortlist("tree, cosine, 300", rows.SHIPPED, "cosine", 300),
        Shortlist("tree, L1, 1,000", rows.SHIPPED, "tv", 1_000),
        Shortlist("tree trained by total variation, L1, 1,000", rows.VARIATION, "tv", 1_000),
        Shortlist(f"{rows.MRL.name}, 300", rows.MRL, "cosine", 300),
        Shortlist(f"{rows.MRL.name}, 1,000", rows.MRL, "cosine", 1_000),
    ]
    shortlists = {one.name: finished(bench, one, 0) for one in listed}
    report(f"{bench.name}: shortlists")
    times = speeds(bench, rows.SHIPPED)
    report(f"{bench.name}: speed")
    attended = Attended(bench)
    others = sized(bench, [(row, 1) for row in rows.BESIDE_ATTENDING], report)
    found = {rows.ATTENDING.name: attended.values(rows.ATTENDING), **others.found}
    attending = Sized([rows.ATTENDING, *others.rows], found)
    report(f"{bench.name}: attention")
    far = attended.distances(rows.ATTENDING)
    alike = attend(bench, attended, report)
    return Findings(
        bench.name, about, told, leaves, curves, similarities, stored, shortlists, times, attending, far, alike
    )


def attend(bench: Bench, tokens: Attended, report: Callable[[str], None]) -> Sized:
    """What a tree and its controls find that attend to the same tokens, and rows of vectors with as many steps."""
    attending, values = Attending(tokens), {}
    for row in rows.ATTEND:
        values[row.name] = attending.values(row)
        report(f"{bench.name}: {row.name}")
    vectors = sized(bench, [(row, 1) for row in rows.READ_VECTORS], report)
    return Sized([*rows.ATTEND, *vectors.rows], {**values, **vectors.found})


if __name__ == "__main__":
    main()
