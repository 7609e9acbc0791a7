"""The weight of BM25 in hybrid searches, chosen for a trained model by dev queries.

Scores are those of exact search; search/fusion_weight.py has the rule. Where dev queries are few, train queries help
to choose: those that told, in folds, whether the trained encoder is kept (train/adopt.py).

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
from rayhier.model.adoption import Adoption
from rayhier.search.request.model import Model
from rayhier.search.segment.scan import LeafScan
from rayhier.search.words.fusion_weight import WEIGHTS, FusionWeight, best
from rayhier.search.words.hybrid import WordScan, fused
from rayhier.spec import JobSpec
from rayhier.spec.search import CACHE_BYTES, FUSED, UNTAUGHT_WEIGHT, HybridSpec
from rayhier.storage.leaf_map import LeafMap

MEASURE, RESULTS = "nDCG@10", 10
MOST = 1_000
"""Most dev queries that choose a weight: those first by a hash of the id."""


def choose_weight(
    spec: JobSpec, dev: Queries, model: Model, leaf_map: LeafMap, adoption: Adoption | None = None
) -> FusionWeight:
    """Choose the weight of BM25 for a model and the index that it built; `dev` has base vectors of the dev queries.

    `adoption` is the model's, whose train queries in folds choose too.
    """
    if not dev.answered:
        return FusionWeight(weight=UNTAUGHT_WEIGHT, queries=0, measure=MEASURE, measured={})
    dev = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST)))
    codec = spec.search.row_codec(leaf_map.manifest.size)
    leaves = LeafScan.mapped(leaf_map, codec, cache_bytes=CACHE_BYTES)
    query_QM = model.encode_stored(dev.vector_QM, lambda: dev.texts).numpy
    dense = exact_best(leaf_map, query_QM, FUSED)
    dense = replace(dense, documents=dense.documents.select([ID]))
    lexical = WordScan.mapped(leaf_map, leaves).scan(dev.texts, query_QM, FUSED, needs="ids")
    judge, cosines = Judge(dev, [MEASURE]), spec.encoder.similarity == "cosine"

    def measured(weight: float) -> Values:
        ranking = fused(dense, [lexical], RESULTS, HybridSpec(weight=weight), FUSED, cosines=cosines)
        return judge.values(ranking)[MEASURE]

    value_WQ = np.stack([measured(weight) for weight in WEIGHTS])
    folded, sum_W = _in_folds(adoption)
    mean_W = (value_WQ.sum(axis=1) + sum_W) / (len(dev) + folded)
    means = {f"{weight:g}": round(float(mean), 6) for weight, mean in zip(WEIGHTS, mean_W, strict=True)}
    chosen = best(value_WQ, sum_W)
    return FusionWeight(weight=chosen, queries=len(dev), folded=folded, measure=MEASURE, measured=means)


def _in_folds(adoption: Adoption | None) -> tuple[int, Values]:
    """Return the number of train queries that an adoption asked in folds, and their sum of the measure by weight [w].

    They were searched with each weight by the encoder that the index is built with.
    """
    none_W = np.zeros(len(WEIGHTS))
    if adoption is None or adoption.source != "train queries in folds" or not adoption.measured:
        return 0, none_W
    return adoption.queries, adoption.queries * np.array([adoption.measured[f"{weight:g}"] for weight in WEIGHTS])
