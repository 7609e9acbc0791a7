"""Test queries with a near-twin among train queries, and those without: what trainings find of each."""

from dataclasses import dataclass
from functools import partial
from itertools import chain, product

import numpy as np

from benchmarks.answers import twins
from benchmarks.hce.bench import Bench, Comparison
from benchmarks.hce.rows import PLAIN, UNTOUCHED, J
from benchmarks.statistics import groups, paired
from benchmarks.tables import mean, spread, table
from rayhier.arrays import Bools, Ints, Values
from rayhier.dataset.families import families
from rayhier.dataset.queries import Queries, relevant
from rayhier.dataset.words import words

TOLD = (UNTOUCHED, PLAIN, J)
"""Rows that are told for each group; each from those before it."""
MEASURES = ("nDCG@10", "R@100")


@dataclass(frozen=True)
class Twins:
    """Rows measured on one split, and which of its queries are alike or have a near-twin among train queries."""

    told: Comparison
    near_Q: Bools
    """Whether a train query has half of the words of both."""
    family_Q: Ints
    """Family of each query: those that share an answer or half of their words."""

    @property
    def groups(self) -> dict[str, Bools]:
        """Queries of each group, by its name."""
        near = {"near-twins of train queries": self.near_Q, "no near-twin": ~self.near_Q}
        return groups(self.told.split.new_Q) | near


def near_twins(bench: Bench, told: Comparison) -> Twins:
    """Find the near-twins among the queries of a comparison, and families of all of them."""
    queries = told.split.queries
    return Twins(told, twins(queries, list(bench.collection.queries("train").texts)), family(queries))


def family(queries: Queries) -> Ints:
    """Number the family [q] of each query."""
    answers = [relevant(queries.grades[query]) for query in queries.ids]
    return families([words(text) for text in queries.texts], answers)


def lines(twins: Twins) -> list[str]:
    """A table of every group and row, points above the rows before it with intervals that resample families."""
    controls = TOLD[:-1]
    over = [f"over {control.name.partition(',')[0]}" for control in controls]
    head = ["", "queries", *chain(*([measure, *over] for measure in MEASURES))]
    body = []
    for (group, in_Q), (place, row) in product(twins.groups.items(), enumerate(TOLD)):
        cells = [f"{group}: {row.name}", f"{in_Q.sum():,}"]
        for measure in MEASURES:
            value_Q = partial(_values, twins, measure, in_Q)
            seeds = twins.told.found[row.name][measure][:, in_Q].mean(axis=1).tolist()
            cells.append(spread(seeds) if len(seeds) > 1 else mean(seeds))
            for before, control in enumerate(controls):
                above = paired(value_Q(row.name), value_Q(control.name), twins.family_Q[in_Q])
                cells.append(above.shown if before < place else "")
        body.append(cells)
    asked_by = f"{len(twins.family_Q)} queries in {len(np.unique(twins.family_Q))} families"
    seeds_told = f"{twins.told.seeds} seeds" if twins.told.seeds > 1 else "one seed"
    return [f"{asked_by}, {seeds_told}; intervals resample families.", "", *table(head, body)]


def _values(twins: Twins, measure: str, in_Q: Bools, row: str) -> Values:
    return np.asarray(twins.told.found[row][measure].mean(axis=0)[in_Q])
