"""Measure how queries spread over leaves, as in EHI's Figures 1b and 6b. Shapes: Q queries, L leaves."""

from collections.abc import Mapping, Sequence

import numpy as np

from rayhier.arrays import Ints, Values
from rayhier.dataset.measures import means


def groups_of(first_Q: Ints, sizes: Sequence[int], values: Mapping[str, Values]) -> dict[str, dict[str, float]]:
    """Describe three groups of leaves, and measure the queries that visit a leaf of each group first.

    The head has the leaves that most queries visit first, until half of the queries are covered. The tail has all other
    leaves that a query visits first. `first_Q` is each query's first leaf [q], `sizes` are the rows of each leaf [l].
    `values` are each query's measures [q].
    """
    query_L, size_L = np.bincount(first_Q, minlength=len(sizes)), np.array(sizes)
    order, head_L = np.argsort(-query_L, kind="stable"), np.zeros(len(sizes), bool)
    head_L[order] = np.cumsum(query_L[order]) - query_L[order] < len(first_Q) / 2
    counts = {"leaves": size_L**0, "rows": size_L / size_L.sum(), "queries": query_L}
    groups = {"head": head_L, "tail": (query_L > 0) & ~head_L, "unvisited": query_L == 0}
    described = dict[str, dict[str, float]]()
    for group, in_L in groups.items():
        in_Q = in_L[first_Q]
        measures = means({name: value_Q[in_Q] for name, value_Q in values.items()}) if in_Q.any() else {}
        described[group] = {name: float(count_L[in_L].sum()) for name, count_L in counts.items()} | measures
    return described
