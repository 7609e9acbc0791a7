"""Score the ground truth ahead, in several processes: `python -m benchmarks.axn.fill --part 0 --parts 2`."""

import argparse
from pathlib import Path

from benchmarks.axn.world import World
from benchmarks.collection import RUNS
from benchmarks.machine import set_threads


def main() -> None:
    """Score every pair of the test and held-out queries, or one part of these."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.axn.fill", description="Score all pairs, once.")
    parser.add_argument("--workdir", type=Path, default=RUNS / "axn")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    given = parser.parse_args()
    set_threads(1)
    world = World.make(given.workdir)
    queries = {name: text for one in (world.held, world.tested) for name, text in zip(one.ids, one.texts, strict=True)}
    world.truth.fill(dict(list(queries.items())[given.part :: given.parts]))


if __name__ == "__main__":
    main()
