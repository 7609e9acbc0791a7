"""Score the ground truth ahead, in several processes: `python -m benchmarks.axn.fill --part 0 --parts 2`."""

from benchmarks.axn.world import HELD, TESTED, World
from benchmarks.commands import Options
from benchmarks.machine import set_threads
from rayhier.dataset.holdout import held_queries


def main() -> None:
    """Score every pair of the test and held-out queries, or one part of these."""
    parser = Options("Score all pairs, once.", "axn")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    given = parser.parse_args()
    set_threads(1)
    world = World(given.workdir)
    texts = {name: text for one in (world.held, world.tested) for name, text in zip(one.ids, one.texts, strict=True)}
    held, tested = held_queries(world.held.ids, HELD), held_queries(world.tested.ids, TESTED)
    # Half of both first: a benchmark of fewer queries (--tests, --keeps) reads those.
    order = [*held[: HELD // 2], *tested[: TESTED // 2], *held[HELD // 2 :], *tested[TESTED // 2 :]]
    world.truth.fill({name: texts[name] for name in order[given.part :: given.parts]})


if __name__ == "__main__":
    main()
