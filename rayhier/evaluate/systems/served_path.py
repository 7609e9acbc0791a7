"""The index as a system that is searched as it is served: routed, scanned, fused with BM25, re-ranked."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rayhier.dataset.ranking import Ranking
from rayhier.search.calibration import Calibration
from rayhier.search.model import Model
from rayhier.search.snapshot import Snapshot
from rayhier.spec import JobSpec
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap
from rayhier.storage.paths import locate


class ServedPath:
    """The searcher of one process over all shards of an index as it was built."""

    def __init__(self, searcher: Snapshot) -> None:
        self.searcher = searcher

    @classmethod
    def open(cls, spec: dict[str, Any], model: str, index: str, found: Mapping[str, str]) -> Self:
        """Open a model and an index by their folders; `found` are folders of what re-ranking reads, by kind."""
        job, trained = JobSpec.model_validate(spec), Artifact.open(locate(model))
        leaf_map = LeafMap.open(Artifact.open(locate(index)).root, BUILT)
        opened = {kind: Artifact.open(locate(folder)) for kind, folder in found.items()}
        chosen = Calibration.open(opened["calibration"]) if job.chooses_beam else None
        opened_model = Model.open(trained, job, calibration=chosen)
        return cls(Snapshot(job, leaf_map, opened_model.load(), opened))

    def rank(
        self, texts: Sequence[str], k: int, mode: str | None = None, budget: int | None = None
    ) -> tuple[Ranking, float]:
        """Rank the best k results of each query, and return the seconds it took; a budget of 0 re-ranks nothing."""
        began, measured = time.perf_counter(), self.searcher.model.spec.measured
        spends = None if self.searcher.reranker is None else budget
        rules = self.searcher.rules
        request = rules.request(list(texts), k, filter=measured, mode=mode, budget=spends)
        ranking = self.searcher.retrieve(request).ranking
        return ranking, time.perf_counter() - began
