"""EHI on SciFact: `make bench-ehi`, which writes docs/ehi.md (an hour on one core; what is done is kept)."""

from benchmarks.commands import Options, clock
from benchmarks.ehi.bench import Bench, Found
from benchmarks.ehi.page import Findings, write_page
from benchmarks.ehi.rates import Rates
from benchmarks.ehi.rows import GROUPED, TABLES, TIMED
from benchmarks.ehi.speed import speeds
from benchmarks.machine import set_threads


def main() -> None:
    """Measure every row, write the page and its plots, and print the page."""
    given = Options("EHI's ablations on SciFact.", "bench-ehi", "seeds", "docs").parse_args()
    set_threads(1)
    bench, report = Bench(given.workdir), clock()
    rates: dict[str, Rates] = {}
    for row in (row for rows in TABLES.values() for row in rows if row.tuned):
        rates[row.name] = bench.rates(row)
        report(f"rates of {row.name}: {rates[row.name].chosen}")
    tables: dict[str, list[Found]] = {}
    for title, rows in TABLES.items():
        tables[title] = []
        for row in rows:
            tables[title].append(bench.found(row, given.seeds))
            report(f"{title}: {row.name}")
    grouped = [bench.found(row, given.seeds) for row in GROUPED]
    timed = {row.name: speeds(bench, bench.with_rates(row)) for row in TIMED}
    report("seconds")
    print(write_page(bench, Findings(tables, grouped, rates, timed), given.seeds, given.docs))


if __name__ == "__main__":
    main()
