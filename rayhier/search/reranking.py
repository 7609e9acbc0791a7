"""Open the re-ranker that a spec names, from published artifacts."""

from collections.abc import Mapping

from rayhier.scores.factors import Factors
from rayhier.scores.settings import Settings, open_scorer
from rayhier.search.bm25 import IndexedWords
from rayhier.search.rerank import Anchors, Read, Reranker
from rayhier.spec import JobSpec
from rayhier.spec.search import AdacurRerank, NoRerank
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import LeafMap

KINDS = ("cross_encoder", "scores", "factors")
"""Kinds of artifacts that re-ranking may read."""


def open_reranker(
    spec: JobSpec, found: Mapping[str, Artifact], leaf_map: LeafMap, read: Read | None = None
) -> Reranker | None:
    """Open what a spec's re-ranking needs among artifacts by kind; None where it asks for none.

    The cross-encoder itself is opened here, unless something else is to `read` pairs.
    InputError where factors were made for another model than the leaf map's.
    """
    rerank = spec.search.rerank
    if isinstance(rerank, NoRerank) or spec.cross_encoder is None:
        return None
    published = found["cross_encoder"]
    factors = found.get("factors")
    return Reranker(
        rerank,
        read or open_scorer(published, spec.cross_encoder),
        Settings.read(published).beside,
        None if factors is None else Factors.open(factors, leaf_map.manifest.model),
        Anchors.open(found["scores"]) if isinstance(rerank, AdacurRerank) else None,
        IndexedWords.of(leaf_map) if rerank.first in ("bm25", "both") else None,
    )
