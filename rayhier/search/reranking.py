"""Opens the re-ranker that a spec names, from published artifacts."""

from collections.abc import Mapping

from rayhier.scores.factors import Factors
from rayhier.scores.scorer import open_scorer
from rayhier.search.rerank import Anchors, Reranker
from rayhier.search.rerank_weight import RerankWeight
from rayhier.spec import JobSpec
from rayhier.spec.search import AdacurRerank
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import LeafMap

KINDS = ("cross_encoder", "scores", "factors", "calibration")
"""Kinds of artifacts that a re-ranker may read."""


def open_reranker(
    spec: JobSpec, published: Mapping[str, Artifact], leaf_map: LeafMap, *, reads: bool = True
) -> Reranker | None:
    """Open the re-ranker of a spec from the artifacts published, by kind; None where the spec does not re-rank.

    With `reads` False the cross-encoder itself is not opened, as another process scores pairs. InputError where factors
    were made for another model than the leaf map's.
    """
    rerank = spec.search.reranking
    if rerank is None or spec.cross_encoder is None:
        return None
    cross_encoder, factors, calibration = (published.get(kind) for kind in ("cross_encoder", "factors", "calibration"))
    if cross_encoder is None:
        raise AssertionError("a run that re-ranks publishes a cross-encoder")
    chosen, given = None if calibration is None else RerankWeight.open(calibration), spec.cross_encoder.beside
    beside = given if given != "auto" else 0.0 if chosen is None else chosen.beside
    return Reranker(
        rerank,
        open_scorer(cross_encoder, spec.cross_encoder) if reads else None,
        beside,
        None if factors is None else Factors.open(factors, leaf_map.manifest.model),
        Anchors.open(published["scores"]) if isinstance(rerank, AdacurRerank) else None,
        None if chosen is None else chosen.slope,
    )
