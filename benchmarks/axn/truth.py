"""Ground truth: every pair of some queries and all documents, scored once by the cross-encoder and kept.

A query's scores are one file; a run that is killed goes on with the pairs that are missing.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.cache import keep
from rayhier.arrays import Floats
from rayhier.scores.scorer import PairScorer

PART = 512
"""Pairs after which what is scored so far is kept."""


class Truth:
    """Scores of queries for all documents of a collection, in a folder named by all that they depend on."""

    def __init__(self, folder: Path, scorer: PairScorer, texts: Sequence[str]) -> None:
        """Keep scores below a folder; `texts` are those of all documents, in their order."""
        self.folder, self.scorer, self.texts = folder, scorer, list(texts)

    def known(self, name: str) -> Floats:
        """Scores [n] of the first documents of a query, as many as are kept."""
        for path in (self._whole(name), self._part(name)):
            if path.is_file():
                with np.load(path) as held:
                    return np.asarray(held["scores"])
        return np.zeros(0, np.float32)

    def scores(self, name: str, query: str) -> Floats:
        """Scores [n] of all documents for a query; what is missing is scored now."""
        done = self.known(name)
        while len(done) < len(self.texts):
            items = self.texts[len(done) : len(done) + PART]
            done = np.concatenate([done, self.scorer([query] * len(items), items)])
            whole = len(done) == len(self.texts)
            keep(self._whole(name) if whole else self._part(name), {"scores": done})
        self._part(name).unlink(missing_ok=True)
        return done

    def fill(self, queries: dict[str, str]) -> None:
        """Score all documents for queries by their ids, and say how long it takes."""
        began, scored = time.monotonic(), 0
        for number, (name, text) in enumerate(queries.items(), start=1):
            missing = len(self.texts) - len(self.known(name))
            self.scores(name, text)
            scored += missing
            if missing:
                rate = scored / (time.monotonic() - began)
                print(f"truth: {number} of {len(queries)} queries, {rate:.0f} pairs/s", file=sys.stderr, flush=True)

    def _whole(self, name: str) -> Path:
        return self.folder / f"{name}.npz"

    def _part(self, name: str) -> Path:
        return self.folder / "parts" / f"{name}.npz"
