"""The weight of BM25 in hybrid searches, chosen for a trained model by dev queries.

Scores are those of exact search. The weight that wins by chance alone is not taken: of all weights that are not behind
the best by more than one standard error of the difference, query by query, the one nearest to a usual weight is (ours).

Titles and sentences of documents, searched for where their documents lack them, cannot stand for dev queries here: they
say what a document's own words are worth, and not what a query's are (docs/LOG.md).

Shapes: Q queries, W weights.
"""

from dataclasses import replace

import numpy as np

from rayhier.arrays import Values
from rayhier.dataset.holdout import held_queries
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import ID
from rayhier.evaluate.exact_best import exact_best
from rayhier.search.fusion_weight import FusionWeight
from rayhier.search.hybrid import WordScan, fused
from rayhier.search.model import Model
from rayhier.search.scan import LeafScan
from rayhier.spec import JobSpec
from rayhier.spec.search import TAUGHT_WEIGHT, UNTAUGHT_WEIGHT, HybridSpec
from rayhier.storage.leaf_map import LeafMap

WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
MEASURE, RESULTS = "nDCG@10", 10
MOST = 1_000
"""Most dev queries that choose a weight: those first by a hash of the id."""
FEWEST = 20
"""Fewest dev queries that choose; fewer leave the usual weight."""
ERRORS = 1.0
"""Number of standard errors by which a weight may be behind the best."""


def choose_weight(spec: JobSpec, dev: Queries, model: Model, leaf_map: LeafMap) -> FusionWeight:
    """Choose the weight of BM25 for a model and the index that it built; `dev` has base vectors of the dev queries."""
    if not dev.answered:  # nothing that is judged can have taught it
        return FusionWeight(weight=UNTAUGHT_WEIGHT, queries=0, measure=MEASURE, measured={})
    dev, depth = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST))), spec.search.hybrid.depth
    codec = spec.search.row_codec(leaf_map.manifest.size)
    leaves = LeafScan.mapped(leaf_map, codec, cache_bytes=spec.search.cache_gb * 1e9)
    query_QM = model.encode_stored(dev.vector_QM, lambda: dev.texts).numpy
    dense = exact_best(leaf_map, query_QM, depth)
    dense = replace(dense, documents=dense.documents.select([ID]))
    lexical = WordScan.mapped(leaf_map, leaves).scan(dev.texts, query_QM, depth, needs="ids")
    judge, cosines = Judge(dev, [MEASURE]), spec.encoder.similarity == "cosine"

    def measured(weight: float) -> Values:
        ranking = fused(dense, [lexical], RESULTS, HybridSpec(weight=weight), depth, cosines=cosines)
        return judge.values(ranking)[MEASURE]

    value_WQ = np.stack([measured(weight) for weight in WEIGHTS])
    chosen = nearest_to(TAUGHT_WEIGHT, value_WQ) if len(dev) >= FEWEST else TAUGHT_WEIGHT
    means = {f"{weight:g}": round(float(value_Q.mean()), 6) for weight, value_Q in zip(WEIGHTS, value_WQ, strict=True)}
    return FusionWeight(weight=chosen, queries=len(dev), measure=MEASURE, measured=means)


def nearest_to(usual: float, value_WQ: Values) -> float:
    """Return the weight nearest to the usual one of those that are not behind the best by more than chance.

    `value_WQ` [w, q] are the measure of each query with each of WEIGHTS.

    >>> even_WQ = np.tile([0.5, 0.7], (len(WEIGHTS), 1))
    >>> nearest_to(0.15, even_WQ), nearest_to(0.15, even_WQ * np.linspace(1, 0.5, len(WEIGHTS))[:, None])
    (0.15, 0.0)
    """
    behind_WQ = value_WQ[value_WQ.mean(axis=1).argmax()] - value_WQ
    error_W = behind_WQ.std(axis=1) / behind_WQ.shape[1] ** 0.5
    able = np.flatnonzero(behind_WQ.mean(axis=1) <= ERRORS * error_W + 1e-12)
    return min((WEIGHTS[place] for place in able.tolist()), key=lambda weight: abs(weight - usual))
