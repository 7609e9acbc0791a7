"""How queries and their answers spread over leaves, as in EHI's Figures 1b and 6b. Shapes: Q queries, L leaves."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Ints, Values
from rayhier.dataset.measures import means
from rayhier.dataset.queries import Queries, relevant
from rayhier.storage.leaf_map import LeafMap


@dataclass(frozen=True)
class LeafLoad:
    """The leaf that each query visits first [q], and the number of answers in each leaf [l]."""

    first_Q: Ints
    answer_L: Ints

    def groups(self, sizes: Sequence[int], values: Mapping[str, Values]) -> dict[str, dict[str, float]]:
        """Describe three groups of leaves, and measure the queries that visit a leaf of each group first.

        The head is the smallest set of leaves that at least half of the queries visit first. The tail has the other
        leaves that a query visits first. `sizes` are the rows of each leaf [l], `values` the measures of queries [q].
        """
        query_L, size_L = np.bincount(self.first_Q, minlength=len(sizes)), np.array(sizes)
        order, head_L = np.argsort(-query_L, kind="stable"), np.zeros(len(sizes), bool)
        head_L[order] = np.cumsum(query_L[order]) - query_L[order] < len(self.first_Q) / 2
        counts = {"leaves": size_L**0, "rows": size_L / size_L.sum(), "queries": query_L, "answers": self.answer_L}
        groups = {"head": head_L, "tail": (query_L > 0) & ~head_L, "unvisited": query_L == 0}
        described = dict[str, dict[str, float]]()
        for group, in_L in groups.items():
            in_Q = in_L[self.first_Q]
            measures = means({name: value_Q[in_Q] for name, value_Q in values.items()}) if in_Q.any() else {}
            described[group] = {name: float(count_L[in_L].sum()) for name, count_L in counts.items()} | measures
        return described


def answers_by_leaf(leaf_map: LeafMap, queries: Queries) -> Ints:
    """Count for each leaf [l] the answers of all queries. An answer counts in its first leaf, not in its second."""
    asked = Counter(name for query in queries.ids for name in relevant(queries.grades[query]))
    names, count_L = pa.array(asked, pa.string()), np.zeros(len(leaf_map.manifest.counts), np.int64)
    for shard in leaf_map.manifest.shards:
        rows = leaf_map.read(shard, ["leaf", "rank", key := leaf_map.key(shard)])
        rows = rows.filter(pc.and_(pc.equal(rows["rank"], 0), pc.is_in(rows[key], names)))
        for leaf, name in {*zip(rows["leaf"].to_pylist(), rows[key].to_pylist(), strict=True)}:
            count_L[leaf] += asked[name]
    return count_L
