"""What the benchmark searches: SciFact, its base vectors, BM25, a trained cross-encoder, and scores of all pairs."""

import sys
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.cache import keep, kept, key
from benchmarks.collection import ROOT, made, place
from rayhier.arrays import Floats, Ints
from rayhier.dataset.documents import load_documents, load_texts
from rayhier.dataset.holdout import held_queries
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, load_split
from rayhier.dataset.ranking import ID, Ranking
from rayhier.evaluate.reranking import MEASURE, MOST, WEIGHTS, reordered
from rayhier.job.plan import make_plan
from rayhier.job.run import run
from rayhier.scores.scorer import PairScorer, Settings, open_scorer
from rayhier.search.bm25 import Words
from rayhier.spec import load
from rayhier.spec.cross_encoder import CHOSEN_DEPTH

PART = 512
"""Pairs after which what is scored so far is kept."""


class Truth:
    """Scores of queries for all documents of a collection, in a folder named by all that they depend on."""

    def __init__(self, folder: Path, scorer: PairScorer, texts: Sequence[str]) -> None:
        """Keep scores below a folder; `texts` are those of all documents, in their order."""
        self.folder, self.scorer, self.texts = folder, scorer, list(texts)

    def known(self, name: str) -> Floats:
        """Scores [n] of the first documents of a query, as many as are kept."""
        there = [path for path in self._places(name) if path.is_file()]
        return np.asarray(np.load(there[0])["scores"]) if there else np.zeros(0, np.float32)

    def scores(self, name: str, query: str) -> Floats:
        """Scores [n] of all documents for a query; what is missing is scored now."""
        done, (whole, part) = self.known(name), self._places(name)
        while len(done) < len(self.texts):
            items = self.texts[len(done) : len(done) + PART]
            done = np.concatenate([done, self.scorer([query] * len(items), items)])
            keep(whole if len(done) == len(self.texts) else part, {"scores": done})
        part.unlink(missing_ok=True)
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

    def _places(self, name: str) -> tuple[Path, Path]:
        """Files of a query's scores, and of a part of them."""
        return self.folder / f"{name}.npz", self.folder / "parts" / f"{name}.npz"


SPEC = ROOT / "specs" / "scifact-axn.yaml"
TESTED, HELD = 100, 50
"""Test queries, and train queries that no training sees, whose scores for all documents are the truth."""
CHOOSE = 25
"""Held-out queries on which settings are chosen, at most."""
MADE = ("corpus", "embed", "test", "cross_encoder")


class World:
    """A collection under its base encoder and a cross-encoder."""

    def __init__(
        self, workdir: Path, name: str = "scifact", more: Sequence[str] = (), tests: int = TESTED, keeps: int = HELD
    ) -> None:
        """Run the shipped spec up to the cross-encoder where that is missing, and open what it published."""
        if keeps > HELD:
            raise ValueError(f"keeps: got {keeps}; allowed: at most {HELD}, which the cross-encoder never learns from")
        self.plan = make_plan(load(SPEC, [*place(name, workdir), *more]))
        run(self.plan, MADE)
        published = made(self.plan, "corpus", "vectors", "test", "cross_encoder")
        self.corpus, self.vectors, self.test, self.cross_encoder = published
        self.documents = load_documents(self.corpus, self.vectors)
        self.texts: list[str] = load_texts(self.corpus, self.documents.ids).to_pylist()
        self.words = Words(self.texts)
        reads, spec = self.cross_encoder, self.plan.spec.cross_encoder
        assert spec is not None
        folder = f"{reads.folder.name}-{self.corpus.folder.name}-{Settings.read(reads).precision}"
        self.truth = Truth(workdir / "truth" / folder, open_scorer(reads, spec), self.texts)
        self.lessons: dict[object, Any] = {}
        """What systems have learned from the held-out queries' scores, kept for all settings."""
        train, test = self.queries("train"), self.queries("test")
        trained, test = set(train.texts), test.some(np.isin(test.ids, held_queries(test.ids, tests)))
        self.tested = test.some(np.array([text not in trained for text in test.texts]))
        """The test queries whose truth is known: the first by a hash of their ids, but for texts of train queries."""
        self.held = train.some(np.isin(train.ids, held_queries(train.ids, keeps)))
        """Train queries that nothing learned from; settings are chosen on them, and they are ADACUR's anchors."""
        self.chooses = self.held.some(np.arange(len(self.held)) < CHOOSE)
        """Held-out queries on which settings are chosen, the first of them: each is left out of what it is told by."""

    @cached_property
    def beside(self) -> float:
        """Weight of the base score beside the cross-encoder's: the best on dev, over the base's first documents."""
        dev = self.queries("dev")
        dev = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST)))
        base_QN = self.base(dev)
        row_QK = np.argsort(-base_QN, axis=1, kind="stable")[:, :CHOSEN_DEPTH]
        zero_Q, ids = np.zeros(len(dev), np.int64), pa.table({ID: self.documents.ids})
        base_QK = np.take_along_axis(base_QN, row_QK, axis=1)
        ranking = Ranking(base_QK, row_QK, ids, zero_Q, zero_Q, zero_Q)
        score_QK, judge = self.best_scores(dev, row_QK).astype(np.float64), Judge(dev, [MEASURE])
        measured = {weight: judge.mean(reordered(ranking, score_QK, base_QK, weight))[MEASURE] for weight in WEIGHTS}
        return max(WEIGHTS, key=lambda weight: (measured[weight], -weight))

    def queries(self, split: str) -> Queries:
        """All judged queries of a split."""
        return load_split(split, self.corpus, self.vectors, self.test)

    def known(self, queries: Queries) -> Floats:
        """Scores [q, n] of all documents for queries whose truth is kept or now made."""
        return np.stack([self.truth.scores(name, text) for name, text in zip(queries.ids, queries.texts, strict=True)])

    def best_scores(self, queries: Queries, best_QK: Ints) -> Floats:
        """Scores [q, k] of some documents of every query; those that the truth lacks are read and kept."""
        found, truth = [], self.truth
        for name, text, row_K in zip(queries.ids, queries.texts, best_QK, strict=True):
            known, items = truth.known(name), [self.texts[row] for row in row_K.tolist()]
            if len(known) == len(self.texts):
                found.append(known[row_K])
                continue

            def read(text: str = text, items: Sequence[str] = items) -> dict[str, Floats]:
                return {"scores": truth.scorer([text] * len(items), items)}

            found.append(kept(truth.folder / "best" / f"{name}-{key(row_K.tolist())}.npz", read)["scores"])
        return np.stack(found)

    def base(self, queries: Queries) -> Floats:
        """Base scores [q, n] of all documents."""
        return queries.vector_QM @ self.documents.vector_NM.T
