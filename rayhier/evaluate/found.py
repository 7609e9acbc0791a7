"""What a search finds and what it costs, and how what several parts of an index find becomes one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rayhier.search.lists import Ints, LeafLists, once
from rayhier.storage.columns import Floats

Names = npt.NDArray[np.object_]


@dataclass(frozen=True)
class Ranking:
    """Best results of each query: rows [q, k] of `ids`, -1 where there is none, scores [q, k]."""

    score_QK: Floats
    row_QK: Ints
    ids: Names
    """Result ids: of whole documents where the corpus is cut into passages."""


@dataclass(frozen=True)
class Found:
    """A ranking and what it cost each query."""

    ranking: Ranking
    visited_Q: Ints
    """Distinct documents scored."""
    scanned_Q: Ints
    """Scores computed: a document in two searched leaves counts twice."""
    leaves: float = 0.0
    """Leaves searched for a query, in the mean; a graph has none."""


def scan(lists: LeafLists, ids: Names, query_QM: Floats, leaves_QB: Ints, k: int) -> Found:
    """Search each query's leaves [q, β] of lists whose rows are results `ids` [n]."""
    ranking = Ranking(*lists.search(query_QM, leaves_QB, k), ids)
    return Found(ranking, lists.visited(leaves_QB), lists.scanned(leaves_QB), mean_leaves(leaves_QB))


def mean_leaves(leaves_QB: Ints) -> float:
    """Leaves [q, β] of a query, in the mean; -1 is none."""
    return float((leaves_QB >= 0).sum(axis=1).mean())


def merge(parts: Sequence[Found], k: int) -> Found:
    """The best k over all parts of an index, each result once; visited and scanned add up."""
    ids = np.concatenate([part.ranking.ids for part in parts])
    begin = np.cumsum([0, *(len(part.ranking.ids) for part in parts)])
    row_QF = np.concatenate(
        [
            np.where(part.ranking.row_QK >= 0, part.ranking.row_QK + first, -1)
            for part, first in zip(parts, begin, strict=False)
        ],
        axis=1,
    )
    score_QF = np.concatenate([part.ranking.score_QK for part in parts], axis=1)
    order = np.argsort(-score_QF, axis=1, kind="stable")
    rows, scores = (np.take_along_axis(array, order, axis=1) for array in (row_QF, score_QF))
    code = {name: number for number, name in enumerate(dict.fromkeys(ids.tolist()))}
    result_N = np.array([code[name] for name in ids.tolist()], dtype=np.int64)
    best = Ranking(*once(scores, rows, result_N, k), ids) if len(ids) else Ranking(scores[:, :k], rows[:, :k], ids)
    visited, scanned = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("visited_Q", "scanned_Q"))
    return Found(best, visited, scanned, parts[0].leaves)
