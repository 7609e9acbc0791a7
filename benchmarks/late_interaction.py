"""Late interaction over hybrid results: what MaxSim of tokens adds, on folds in which nothing leaks.

The score of a document is its hybrid score + w · MaxSim, among the first documents that hybrid search lists. Tokens are
those of the untrained transformer: as they are, projected on principal directions, and projected as training pairs
teach; the projected ones in half floats and in codes of 4 and 2 bits. Where several folds are measured, the queries of
the others choose w; where only one is, its dev queries do. The test split is not read.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.commands import Options, clock
from benchmarks.default_training import COLLECTIONS, FOLDS, Study
from benchmarks.fusion import NDCG
from benchmarks.late.candidates import RECALL, Listing, Sizes, listing
from benchmarks.late.systems import PLAIN, SIZES, FoldSystems, Scored, System, systems
from benchmarks.late.tokens import Read
from benchmarks.machine import set_threads
from benchmarks.statistics import groups, paired
from benchmarks.tables import table
from rayhier.arrays import Bools, Values

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Of MaxSim."""
DEPTHS = (100, 30)
"""Documents that are re-ranked."""


class Table:
    """A collection's folds and what every system makes of their candidates."""

    def __init__(self, listings: Sequence[Listing], scored: Mapping[System, Sequence[Scored]]) -> None:
        self.listings, self.scored = listings, scored
        unseen = [listed.unseen for listed in listings]
        self.family_A = np.concatenate([of.family_Q for of in unseen])
        self.new_A = np.concatenate([of.new_Q for of in unseen])
        self.part_A = np.repeat(np.arange(len(unseen)), [len(of.row_QK) for of in unseen])
        self.base = self._joined(PLAIN, 0.0, min(DEPTHS))

    def _joined(self, system: System, weight: float, depth: int, *, dev: bool = False) -> dict[str, Values]:
        """Measure [a] the queries of all folds, or their dev queries, with a weight; inf: MaxSim alone."""
        parts = []
        for listed, scored in zip(self.listings, self.scored[system], strict=True):
            candidates, maxsim_QK = (listed.dev, scored.dev_QK) if dev else (listed.unseen, scored.unseen_QK)
            assert maxsim_QK is not None
            first_QK = candidates.score_QK[:, :depth].astype(np.float64)
            late_QK = maxsim_QK[:, :depth]
            score_QK = candidates.score_QK.astype(np.float64) - 1e3
            score_QK[:, :depth] = (
                late_QK if weight == np.inf else first_QK + weight * np.where(late_QK > -np.inf, late_QK, 0)
            )
            parts.append(candidates.measured(score_QK))
        return {name: np.concatenate([values[name] for values in parts]) for name in (NDCG, RECALL)}

    def choices(self, tried: Sequence[System], depth: int) -> list[tuple[System, float]]:
        """Choose for each fold, on queries of the others or of dev, the best of some systems and weights."""
        several = len(self.listings) > 1
        pairs = [(system, weight) for system in tried for weight in WEIGHTS]
        value_WA = np.stack([self._joined(*pair, depth, dev=not several)[NDCG] for pair in pairs])
        if not several:
            return [pairs[int(value_WA.mean(axis=1).argmax())]]
        return [
            pairs[int(value_WA[:, self.part_A != part].mean(axis=1).argmax())] for part in range(len(self.listings))
        ]

    def picked(self, choices: Sequence[tuple[System, float]], depth: int) -> dict[str, Values]:
        """Measure [a] each fold's queries by its choice."""
        by_choice = {choice: self._joined(*choice, depth) for choice in set(choices)}
        return {
            name: np.concatenate([by_choice[choice][name][self.part_A == part] for part, choice in enumerate(choices)])
            for name in (NDCG, RECALL)
        }

    def lines(self, depth: int, in_A: Bools) -> list[str]:
        """A table of all systems over some queries, re-ranking so many documents."""
        head = [
            "",
            "w",
            NDCG,
            "over hybrid",
            RECALL,
            "over hybrid",
            f"alone: {NDCG}",
            "best w: over hybrid",
            "bytes",
            "ms",
        ]
        rows = [["hybrid", "", self._mean(self.base, NDCG, in_A), "", self._mean(self.base, RECALL, in_A), *[""] * 5]]
        coded = [system for system in self.scored if system.bits]
        for name, tried in [*((system.name, [system]) for system in self.scored), ("chosen of the codes", coded)]:
            choices = self.choices(tried, depth)
            told = sorted({weight for _, weight in choices})
            picked = self.picked(choices, depth)
            cells = [name if len(tried) < 2 else f"{name}: {', '.join(sorted({of.name for of, _ in choices}))}"]
            cells.append("-".join(dict.fromkeys(f"{weight:g}" for weight in (told[0], told[-1]))))
            for measure in (NDCG, RECALL):
                cells += [self._mean(picked, measure, in_A), self._over(picked, measure, in_A)]
            if len(tried) == 1:
                best = max(
                    (self._joined(tried[0], weight, depth) for weight in WEIGHTS),
                    key=lambda of: of[NDCG][in_A].mean(),
                )
                cells += [self._mean(self._joined(tried[0], np.inf, depth), NDCG, in_A), self._over(best, NDCG, in_A)]
                scored = self.scored[tried[0]]
                cells.append(f"{np.mean([of.bytes for of in scored]):,.0f}")
                cells.append(f"{1e3 * np.median(np.concatenate([of.seconds_Q for of in scored])):.1f}")
            rows.append([*cells, *[""] * (len(head) - len(cells))])
        return table(head, rows)

    @staticmethod
    def _mean(values: Mapping[str, Values], measure: str, in_A: Bools) -> str:
        return f"{100 * values[measure][in_A].mean():.1f}"

    def _over(self, values: Mapping[str, Values], measure: str, in_A: Bools) -> str:
        return paired(values[measure][in_A], self.base[measure][in_A], self.family_A[in_A]).shown


def measure(study: Study, only: Sequence[int], seed: int, sizes: Sizes, measured: Sequence[System]) -> list[str]:
    """Measure systems on some folds, and say when each is done."""
    report = clock()
    listings = []
    for fold in study.folds(only):
        listings.append(listing(study, fold, seed, sizes))
        report(f"{study.name}, {fold.name}: BM25 at {listings[-1].weight:g}")
    read = Read.of(study, listings)
    report(f"{study.name}: tokens of {len(read.documents.begin_N) - 1:,} documents")
    scored: dict[System, list[Scored]] = {system: [] for system in measured}
    for listed in listings:
        of_fold = FoldSystems(study, read, listed, seed, sizes, reads_dev=len(listings) == 1)
        for projection in dict.fromkeys((system.size, system.trained) for system in measured):
            alike = [system for system in measured if (system.size, system.trained) == projection]
            for system, result in zip(alike, of_fold.scored(alike), strict=True):
                scored[system].append(result)
                report(f"{study.name}, {listed.fold.name}: {system.name}")
    results = Table(listings, scored)
    lines = [f"## {study.about}", ""]
    for depth in (depth for depth in DEPTHS if depth <= sizes.depth):
        for group, in_A in groups(results.new_A).items():
            lines += [f"### The first {depth} documents, {group} ({in_A.sum():,} queries)", ""]
            lines += [*results.lines(depth, in_A), ""]
    return [f"{results.new_A.sum():,} queries have new answers.", *lines]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and print the tables of each collection."""
    parser = Options("What MaxSim of tokens adds to hybrid search.", "late_interaction")
    parser.add_argument("collections", nargs="*", default=COLLECTIONS, help=f"default: {' '.join(COLLECTIONS)}")
    parser.add_argument("--folds", type=int, default=FOLDS, help=f"measure so many of the {FOLDS} folds")
    parser.add_argument("--seed", type=int, default=0, help="of the trainings")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of projected vectors")
    parser.add_argument("--depth", type=int, default=max(DEPTHS), help="documents that are re-ranked, at most")
    for name, most in (("unseen", 500), ("dev", 200), ("taught", 1500)):
        parser.add_argument(f"--{name}", type=int, default=most, help=f"queries of a fold, at most (default {most})")
    given = parser.parse_args(arguments)
    set_threads(1)
    for name in given.collections:
        study = Study(name, given.workdir, random=False)
        sizes = Sizes(given.unseen, given.dev, given.taught, given.depth)
        print("\n".join(["", *measure(study, range(given.folds), given.seed, sizes, systems(given.sizes))]), flush=True)


if __name__ == "__main__":
    main()
