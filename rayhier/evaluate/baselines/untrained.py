"""The baseline of an untrained encoder, as people use one: exact search by the base vectors, fused with BM25."""

from collections.abc import Sequence

import numpy as np

from rayhier.dataset.holdout import held_queries, load_judged
from rayhier.dataset.queries import Queries, load_queries
from rayhier.model.adoption import MEASURE
from rayhier.search.words.exact_hybrid import ExactHybrid
from rayhier.search.words.fusion_weight import best
from rayhier.spec.encoder import ENOUGH
from rayhier.spec.search import MOST_QUERIES, UNTAUGHT_WEIGHT
from rayhier.storage.artifact import Artifact

UNTRAINED = "exact+bm25"
"""Name of the system in reports."""


def choosing_queries(corpus: Artifact, vectors: Artifact) -> list[Queries]:
    """Load the queries that choose BM25's weight for base vectors: dev, and train too if dev has few.

    Train queries may choose, because the base encoder did not learn from them.
    """
    dev = load_judged(corpus, vectors)
    if len(dev) >= ENOUGH:
        return [dev]
    train = load_queries(corpus, vectors, "train")
    return [dev, train.some(np.isin(train.ids, held_queries(train.ids, MOST_QUERIES)))]


def chosen_weight(search: ExactHybrid, choosing: Sequence[Queries]) -> float:
    """Choose BM25's weight by queries with base vectors. Without judged queries, return the usual weight."""
    answered = [queries for queries in choosing if queries.answered]
    if not answered:
        return UNTAUGHT_WEIGHT
    return best(np.concatenate([search.values(queries, queries.vector_QM, MEASURE) for queries in answered], axis=1))
