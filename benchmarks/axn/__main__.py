"""Cross-encoder search within a budget, beside its controls: `make bench-axn`."""

import json

from benchmarks.axn import findings
from benchmarks.axn.page import write_page
from benchmarks.axn.world import HELD, TESTED, World
from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads


def main() -> None:
    """Measure, write the page and print it."""
    parser = Options("Budgeted search beside its controls.", "axn", "docs")
    parser.add_argument("--tests", type=int, default=TESTED, help="test queries that are measured")
    parser.add_argument("--keeps", type=int, default=HELD, help="held-out train queries that are learned from")
    parser.add_argument("--large", action="store_true", help="acl_title2abs too: 40,000 more pairs")
    given = parser.parse_args()
    set_threads(2)
    report = clock()
    world = World(given.workdir, tests=given.tests, keeps=given.keeps)
    for queries in (world.held, world.tested):
        world.truth.fill(dict(zip(queries.ids, queries.texts, strict=True)))
    report("the truth is there")
    weight = world.beside
    alone, beside = findings.tables(world, weight, report)
    timing = findings.timing(world)
    found = findings.Findings(
        alone,
        beside,
        weight,
        len(world.texts),
        gate=findings.gate(world, weight),
        curves=findings.curves(world),
        factors=findings.chosen_factors(world),
        leaves=findings.beside_all(world),
        black_box=findings.black_box(world),
        timing=timing,
        steps=findings.steps(world, timing["read_once"] / 100),
    )
    report("gate, curves, factors, leaves, seconds")
    kept = given.workdir / "acl" / f"leaves-{world.cross_encoder.folder.name}.json"
    if given.large and not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(findings.elsewhere(kept.parent, world.cross_encoder.local("model"))))
        report("acl_title2abs")
    if kept.is_file():
        found.leaves["acl_title2abs"] = json.loads(kept.read_text())
    print(write_page(found, given.docs))


if __name__ == "__main__":
    main()
