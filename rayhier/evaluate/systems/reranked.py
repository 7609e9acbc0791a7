"""The index searched as it is served: routed, scanned, and re-ranked by a cross-encoder within its budget."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rayhier.dataset.ranking import Ranking
from rayhier.search.model import Model
from rayhier.search.searcher import Searcher
from rayhier.spec import JobSpec
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap
from rayhier.storage.paths import locate


class Reranked:
    """One process's searcher over the whole index as it was built."""

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher

    @classmethod
    def open(cls, spec: dict[str, Any], model: str, index: str, found: Mapping[str, str]) -> Self:
        """Open published artifacts by their folders; `found` are those by kind that re-ranking reads."""
        job, trained = JobSpec.model_validate(spec), Artifact.open(locate(model))
        leaf_map = LeafMap.open(Artifact.open(locate(index)).root, BUILT)
        opened = {kind: Artifact.open(locate(folder)) for kind, folder in found.items()}
        return cls(Searcher.over(Model.open(trained, job).load(), leaf_map, opened))

    def rank(self, texts: Sequence[str], k: int) -> tuple[Ranking, float]:
        """The best k results of each query, re-ranked, and the seconds that it took."""
        began = time.perf_counter()
        ranking, _ = self.searcher.rank(texts, k, filter=self.searcher.model.spec.measured)
        return ranking, time.perf_counter() - began
