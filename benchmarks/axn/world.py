"""What the benchmark searches: SciFact, its base vectors, BM25, a trained cross-encoder, and scores of all pairs."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from benchmarks.cache import keep, kept, key
from benchmarks.collection import ROOT, made, place
from rayhier.arrays import Floats, Ints
from rayhier.dataset.documents import Documents, load_documents, load_texts
from rayhier.dataset.holdout import held_queries
from rayhier.dataset.queries import Queries, load_queries
from rayhier.plan import Plan, make_plan
from rayhier.run import run
from rayhier.scores.scorer import PairScorer
from rayhier.scores.settings import Settings, open_scorer
from rayhier.search.bm25 import Words
from rayhier.spec import load
from rayhier.storage.artifact import Artifact

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


SPEC = ROOT / "specs" / "scifact-axn.yaml"
TESTED, HELD = 100, 50
"""Test queries, and train queries that no training sees, whose scores for all documents are the truth."""
CHOOSE = 25
"""Held-out queries on which settings are chosen, at most."""
MADE = ("corpus", "embed", "cross_encoder")


@dataclass(frozen=True)
class World:
    """A collection under its base encoder and a cross-encoder."""

    plan: Plan
    corpus: Artifact
    vectors: Artifact
    cross_encoder: Artifact
    scores: Path
    """Folder of the truth."""
    tests: int = TESTED
    """Test queries whose truth is used."""
    keeps: int = HELD
    """Held-out train queries whose truth is used."""

    @classmethod
    def make(
        cls, workdir: Path, name: str = "scifact", more: tuple[str, ...] = (), tests: int = TESTED, keeps: int = HELD
    ) -> "World":
        """Run the shipped spec up to the cross-encoder where that is missing, and open what it published."""
        if keeps > HELD:
            raise ValueError(f"keeps: got {keeps}; allowed: at most {HELD}, which the cross-encoder never learns from")
        plan = make_plan(load(SPEC, [*place(name, workdir), *more]))
        run(plan, MADE)
        corpus, vectors, reads = made(plan, "corpus", "vectors", "cross_encoder")
        kept = workdir / "truth" / f"{reads.folder.name}-{corpus.folder.name}-{Settings.read(reads).precision}"
        return cls(plan, corpus, vectors, reads, kept, tests, keeps)

    @cached_property
    def documents(self) -> Documents:
        """Ids and base vectors of all documents."""
        return load_documents(self.corpus, self.vectors)

    @cached_property
    def texts(self) -> list[str]:
        """Texts of all documents, in their order."""
        texts: list[str] = load_texts(self.corpus, self.documents.ids).to_pylist()
        return texts

    @cached_property
    def words(self) -> Words:
        """BM25 over all documents."""
        return Words(self.texts)

    @cached_property
    def lessons(self) -> dict[object, object]:
        """What systems have learned from the held-out queries' scores, kept for all settings."""
        return {}

    @cached_property
    def chooses(self) -> Queries:
        """Held-out queries on which settings are chosen, the first of them: each is left out of what it is told by."""
        return self.held.some(np.arange(len(self.held)) < CHOOSE)

    @cached_property
    def truth(self) -> Truth:
        """Scores of all pairs, kept."""
        spec = self.plan.spec.cross_encoder
        assert spec is not None
        return Truth(self.scores, open_scorer(self.cross_encoder, spec), self.texts)

    def queries(self, split: str) -> Queries:
        """All judged queries of a split."""
        return load_queries(self.corpus, self.vectors, split)

    @cached_property
    def tested(self) -> Queries:
        """The test queries whose truth is known: the first by a hash of their ids, but for texts of train queries."""
        queries, trained = self.queries("test"), set(self.queries("train").texts)
        queries = queries.some(np.isin(queries.ids, held_queries(queries.ids, self.tests)))
        return queries.some(np.array([text not in trained for text in queries.texts]))

    @cached_property
    def held(self) -> Queries:
        """Train queries that nothing learned from; settings are chosen on them, and they are ADACUR's anchors."""
        queries = self.queries("train")
        return queries.some(np.isin(queries.ids, held_queries(queries.ids, self.keeps)))

    def known(self, queries: Queries) -> Floats:
        """Scores [q, n] of all documents for queries whose truth is kept or now made."""
        return np.stack([self.truth.scores(name, text) for name, text in zip(queries.ids, queries.texts, strict=True)])

    def best_scores(self, queries: Queries, best_QK: Ints) -> Floats:
        """Scores [q, k] of some documents of every query; those that the truth lacks are read and kept."""
        found = []
        for name, text, row_K in zip(queries.ids, queries.texts, best_QK, strict=True):
            known, items = self.truth.known(name), [self.texts[row] for row in row_K.tolist()]
            if len(known) == len(self.texts):
                found.append(known[row_K])
                continue
            path = self.scores / "best" / f"{name}-{key(row_K.tolist())}.npz"
            found.append(kept(path, partial(self._read, text, items))["scores"])
        return np.stack(found)

    def _read(self, text: str, items: list[str]) -> dict[str, Floats]:
        return {"scores": self.truth.scorer([text] * len(items), items)}

    def base(self, queries: Queries) -> Floats:
        """Base scores [q, n] of all documents."""
        return queries.vector_QM @ self.documents.vector_NM.T
