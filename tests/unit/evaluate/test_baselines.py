"""How many lists the k-means controls get; their searches are in tests/oracles/test_baselines.py."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.evaluate.baselines.ivf import KmeansIvf, list_choices, tuned_lists
from rayhier.evaluate.curve import beams

from ...draws import to_unit

M, Q = 8, 60


def case(groups, documents, spread, seed):
    """Documents around some centers, and queries near some, answered by the twenty nearest."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(groups, M))[rng.integers(0, groups, documents)]
    vectors = to_unit(vectors + spread * rng.normal(size=(documents, M))).astype(np.float32)
    asked = vectors[rng.choice(documents, Q, replace=False)] + 0.3 * spread * rng.normal(size=(Q, M))
    near = np.argsort(-(asked @ vectors.T), axis=1)[:, :20]
    ids = pa.array([f"d{row}" for row in range(documents)])
    grades = {f"q{n}": {f"d{row}": 1 for row in rows} for n, rows in enumerate(near)}
    return Queries(list(grades), to_unit(asked).astype(np.float32), grades), BaselineDocuments(ids, ids, vectors)


def cost(queries, documents, lists, seed):
    """Least documents and lists that a query compares to reach 95% of exact R@100, linear between two beams."""
    ivf, judge = KmeansIvf(documents, lists, seed), Judge(queries, ["R@100"])
    target = 0.95 * judge.mean(documents.exact(queries.vector_QM, 100))["R@100"]
    found = [ivf.rank(queries.vector_QM, beam, 100) for beam in beams(lists)]
    values = [judge.mean(ranking)["R@100"] for ranking in found]
    paid = [ranking.visited_Q.mean() + lists for ranking in found]
    place = next(place for place, value in enumerate(values) if value >= target)
    return paid[0] if place == 0 else np.interp(target, values[place - 1 : place + 1], paid[place - 1 : place + 1])


@pytest.mark.parametrize(
    ("groups", "documents", "spread", "seed"), [(200, 4000, 0.1, 0), (4, 2000, 0.5, 0), (4, 520, 0.5, 1)]
)
def test_tuned_lists_are_the_cheapest_for_95_percent_of_exact(groups, documents, spread, seed):
    queries, corpus = case(groups, documents, spread, seed)
    costs = {lists: cost(queries, corpus, lists, seed) for lists in list_choices(documents)}
    assert tuned_lists(corpus, queries, seed) == min(costs, key=costs.get)
