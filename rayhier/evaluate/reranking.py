"""The weight of a search's score beside the cross-encoder's, chosen for a trained model by dev queries.

Dev queries are searched as texts are that name no mode, by vectors and BM25 where that is usual, in the leaves that a
query visits (if dev queries choose the beam, in those of an automatic beam); the cross-encoder reads the best documents
of each. Beside its scores stand those that stand there in searches: the search's, or inner products of vectors.

Shapes: Q queries, K documents read, W weights.
"""

from dataclasses import replace

import numpy as np

from rayhier.arrays import Floats, Values
from rayhier.dataset.documents import document_texts
from rayhier.dataset.holdout import held_queries
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking
from rayhier.scores.scorer import open_scorer
from rayhier.search.request.model import Model
from rayhier.search.rerank import RerankWeight
from rayhier.search.segment.segment import VECTOR
from rayhier.search.snapshot import Snapshot
from rayhier.spec import JobSpec
from rayhier.spec.cross_encoder import CHOSEN_DEPTH
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import LeafMap

WEIGHTS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
MEASURE, MOST = "nDCG@10", 200
"""MEASURE tells weights apart; MOST: most dev queries, those first by a hash of the id."""


def choose_beside(
    spec: JobSpec, dev: Queries, model: Artifact, leaf_map: LeafMap, cross_encoder: Artifact
) -> RerankWeight | None:
    """Choose the weight of the search's score for a spec whose mode and BM25's weight are settled.

    None where there are no dev queries, or nothing is found for them.
    """
    rerank, reads = spec.search.reranking, spec.cross_encoder
    if rerank is None or reads is None or not dev.answered:
        return None
    dev = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST)))
    opened = Model.open(model, spec)
    searcher = Snapshot(spec, leaf_map, opened.load())
    depth, texts = min(CHOSEN_DEPTH, rerank.budget), list(dev.texts)
    request = replace(searcher.rules.request(texts, depth), pool=None, needs="vectors")
    ranking = searcher.retrieve(request).ranking
    if not ranking.documents.num_rows:
        return None
    query_X, place_X = np.nonzero(ranking.row_QK >= 0)
    bodies = document_texts(ranking.documents)
    score_X = open_scorer(cross_encoder, reads)(
        [texts[query] for query in query_X.tolist()], [bodies[row] for row in ranking.row_QK[query_X, place_X].tolist()]
    )
    score_QK = np.full(ranking.row_QK.shape, -np.inf)
    score_QK[query_X, place_X] = score_X
    base_QK = ranking.score_QK
    if not spec.search.adds_scores(request.mode):
        query_QM = opened.encode_stored(dev.vector_QM, lambda: dev.texts).numpy
        vector_NM = columns.matrix(ranking.documents[VECTOR])
        base_QK = np.where(ranking.row_QK < 0, -np.inf, np.einsum("qkm,qm->qk", vector_NM[ranking.row_QK], query_QM))
    return best(Judge(dev, [MEASURE]), ranking, score_QK, base_QK)


def best(judge: Judge, ranking: Ranking, score_QK: Values, base_QK: Floats) -> RerankWeight:
    """Choose the weight of base scores [q, k] beside scores [q, k] of a ranking's documents, the least of equals.

    Both are -inf where a query has fewer documents.
    """
    measured = {weight: judge.mean(reordered(ranking, score_QK, base_QK, weight))[MEASURE] for weight in WEIGHTS}
    return RerankWeight(
        beside=max(WEIGHTS, key=lambda weight: (measured[weight], -weight)),
        slope=mean_slope(base_QK, score_QK),
        queries=len(judge.query_ids),
        depth=score_QK.shape[1],
        measure=MEASURE,
        searched=round(judge.mean(ranking)[MEASURE], 6),
        measured={f"{weight:g}": round(value, 6) for weight, value in measured.items()},
    )


def reordered(ranking: Ranking, score_QK: Values, base_QK: Floats, beside: float) -> Ranking:
    """Order a ranking's documents by scores [q, k], -inf where it has none, + `beside` times base scores [q, k]."""
    added_QK = np.where(np.isfinite(score_QK), base_QK, 0.0)
    total_QK = (score_QK + beside * added_QK).astype(np.float32)
    order_QK = np.argsort(-total_QK, axis=1, kind="stable")
    return replace(
        ranking,
        score_QK=np.take_along_axis(total_QK, order_QK, axis=1),
        row_QK=np.take_along_axis(ranking.row_QK, order_QK, axis=1),
    )


def mean_slope(base_QK: Floats, score_QK: Values) -> float:
    """Compute the mean over queries of the slope of scores [q, k] on base scores [q, k] by least squares; at least 0.

    Scores are -inf where a query has fewer documents. A query whose base scores are all alike has slope 0.

    >>> mean_slope(np.array([[0.0, 1.0], [2.0, 2.0]]), np.array([[1.0, 4.0], [0.0, 5.0]]))
    1.5
    """
    slopes = []
    for base_K, score_K in zip(base_QK, score_QK, strict=True):
        there_K = np.isfinite(score_K)
        base_X = base_K[there_K] - base_K[there_K].mean() if there_K.any() else np.zeros(1)
        spread = float((base_X**2).sum())
        slopes.append(float((base_X * score_K[there_K]).sum()) / spread if spread > 0 else 0.0)
    return max(0.0, float(np.mean(slopes))) if slopes else 0.0
