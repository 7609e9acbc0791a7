"""A promised recall beside the measured one: the share of what an exact search finds that the index finds too."""

from collections.abc import Mapping
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from rayhier.search.model import Model

Run = Mapping[str, Mapping[str, float]]
"""Query -> document -> score, as a TREC run has them."""


class Promise(BaseModel):
    """A promise of `search.beam: {type: recall}`, and what was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    k: int
    """Number of documents of an exact search of which a query finds a share."""
    least: float
    """Promised share, the mean over queries like the calibration's: at least the spec's target."""
    queries: int
    """Number of dev queries from which the promise was computed."""
    measured: float
    """Share that the measured queries found, on average."""
    visited: float
    """Mean number of distinct documents scored for a query, as a share of the corpus."""

    @classmethod
    def of(cls, model: Model, found: Run, exact: Run, visited: float) -> Self | None:
        """Compare what an index found with an exact search by the same encoder; None where the model promises nothing.

        `visited` is the mean number of documents scored for a query, as a share of the corpus.
        """
        if model.promised is None or model.calibration is None:
            return None
        k = model.spec.search.k
        measured = share_found(found, exact, k)
        return cls(k=k, least=model.promised, queries=model.calibration.queries, measured=measured, visited=visited)

    def sentence(self, split: str) -> str:
        """Return the promise, and what the queries of `split` found, as a line for people."""
        # Rounded down: a promise is not rounded up.
        return (
            f"search.beam: recall: at least {np.floor(self.least * 1e3) / 1e3:.3f} of the exact best {self.k:,} "
            f"promised, from {self.queries:,} dev queries; measured {self.measured:.3f} on {split}; visits "
            f"{self.visited:.1%} of the documents"
        )


def share_found(found: Run, exact: Run, k: int) -> float:
    """Compute the mean share of an exact search's best k documents that are among the best k found, over its queries.

    >>> share_found({"q": {"a": 0.9, "c": 0.7}}, {"q": {"a": 0.9, "b": 0.8, "c": 0.7}}, k=2)
    0.5
    """
    wanted = {query: _best(scores, k) for query, scores in exact.items()}
    return float(np.mean([len(best & _best(found.get(query, {}), k)) / len(best) for query, best in wanted.items()]))


def _best(scores: Mapping[str, float], k: int) -> set[str]:
    return set(sorted(scores, key=lambda name: -scores[name])[:k])
