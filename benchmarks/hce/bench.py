"""Training of one configuration, what it finds, query by query, kept; and rows of them beside each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import cache
from benchmarks.collection import Collection
from benchmarks.commands import clock
from benchmarks.statistics import Estimate, groups, paired
from benchmarks.training import encode, train
from rayhier.arrays import Bools, Floats, Values
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, new_answers
from rayhier.dataset.spans import load_spans, span_queries
from rayhier.search.exact import exact
from rayhier.spec.encoder import LearningPart
from rayhier.spec.train import ContrastTraining, HceTraining
from rayhier.train.encoder import EncoderPhase
from rayhier.train.examples import Examples
from rayhier.train.tower import TextTower

MEASURES = ("nDCG@10", "R@1", "R@5", "R@10", "R@100")
DEPTH = 100
MOST_ASKED = 2000
"""Queries of a fold that are asked, at most."""


@dataclass(frozen=True)
class Row:
    """One configuration: a training by its settings; None is the untouched encoder."""

    name: str
    train: dict[str, Any] | None
    part: LearningPart = "head"


@dataclass(frozen=True)
class Split:
    """What one training reads, and the queries that are asked of it."""

    name: str
    examples: Examples
    queries: Queries
    new_Q: Bools
    """Whether a query has new answers: none of its answers answers a train query."""


class Bench:
    """A collection under the base encoder, its pseudo-queries, and results that are kept in `workdir`."""

    def __init__(self, name: str, workdir: Path) -> None:
        self.name, self.results = name, workdir.absolute() / "results"
        self.collection = Collection(name, workdir, ["train={type: hce}"])
        self.ids = pa.array(self.collection.documents.ids, pa.string())
        spans = load_spans(self.collection.vectors, self.collection.documents.ids)
        self.spans = spans if spans is not None and len(spans) else None

    @cached_property
    def test(self) -> Split:
        """The train queries, and those of the test split."""
        return self._split("test", self.collection.examples, self.collection.queries("test"))

    def folds(self, count: int, only: int) -> Iterator[Split]:
        """Train queries in `count` parts: of the first `only`, examples without each part, and the part."""
        queries = self.collection.queries("train")
        for fold, (examples, asked_Q) in zip(range(only), self.collection.folds(count), strict=False):
            asked = queries.some(asked_Q & (np.cumsum(asked_Q) <= MOST_ASKED))
            yield self._split(f"fold {fold} of {count}", examples, asked)

    def _split(self, name: str, examples: Examples, queries: Queries) -> Split:
        answers = examples.answers(self.collection.documents.results)
        return Split(name, examples, queries, new_answers(queries, answers))

    def values(self, row: Row, split: Split, seed: int) -> dict[str, Values]:
        """Each measure of every query of a split with one seed, measured now or read from an earlier run."""

        def make() -> dict[str, Values]:
            document_NM, query_QM = self.vectors(row, split, seed)
            ranking = exact(query_QM, document_NM, self.ids, self.ids, DEPTH)
            return Judge(split.queries, MEASURES).values(ranking)

        return cache.kept(self.results / f"{self.key(row, split, seed)}.npz", make)

    @staticmethod
    def key(row: Row, split: Split, seed: int) -> str:
        """Key of what a configuration finds: all its settings, defaults too."""
        settings = None if row.train is None else validated(row.train).model_dump(mode="json")
        return cache.key(settings, row.part, split.name, seed if row.train else 0)

    def vectors(self, row: Row, split: Split, seed: int) -> tuple[Floats, Floats]:
        """Trained vectors of the documents and of a split's queries."""
        if row.train is None:
            return self.collection.documents.vector_NM, split.queries.vector_QM
        phase = self.trained(row, split, seed)
        if isinstance(phase.tower, TextTower):
            phase.tower.give("query", split.queries.texts)
            return phase.documents(), phase.tower.infer("query", np.arange(len(split.queries))).numpy()
        return phase.documents(), encode(phase.tower.module, split.queries.vector_QM)

    def trained(self, row: Row, split: Split, seed: int) -> EncoderPhase:
        """The training of a configuration, carried out, or read from an earlier run."""
        data, examples, spec = self.collection, split.examples, validated(row.train or {})
        if isinstance(spec, ContrastTraining):
            phase = data.encoder(examples, spec, seed)
        else:
            dev, spans, documents = data.dev, self.spans, data.documents
            if spec.objective == "documents":  # no pairs to learn from; dev queries are those of held-out documents
                none_P2 = np.empty((0, 2), dtype=np.int64)
                examples = Examples(documents.vector_NM, documents.vector_NM, none_P2, same=True)
                dev, spans = span_queries(spans, documents.ids, documents.results) if spans else (dev, None)
            phase = data.encoder(examples, spec, seed, row.part, dev, None if spec.objective == "supervised" else spans)
        train(phase, self.results / "trained" / f"{self.key(row, split, seed)}.safetensors")
        return phase


def validated(settings: dict[str, Any]) -> ContrastTraining | HceTraining:
    """A training by its settings."""
    kind = ContrastTraining if settings["type"] == "contrast" else HceTraining
    return kind.model_validate(settings)


@dataclass(frozen=True)
class Comparison:
    """Rows measured on one split, and what every query found."""

    split: Split
    rows: Sequence[Row]
    seeds: int
    found: dict[str, dict[str, Values]]
    """Name of a row -> measure -> values [s, q] of seeds and queries."""

    @property
    def groups(self) -> dict[str, Bools]:
        """Queries of each group that has any, by its name."""
        return groups(self.split.new_Q)

    def mean(self, row: str, measure: str, group: str = "all") -> float:
        """Mean over the queries of a group."""
        return float(self.found[row][measure][:, self.groups[group]].mean())

    def difference(self, row: str, control: str, measure: str, group: str = "all") -> Estimate:
        """Points by which a row is above a control, and its 95% interval, from resamples of the queries."""
        own_Q = self.groups[group]
        return paired(*(self.found[name][measure].mean(axis=0)[own_Q] for name in (row, control)))


def compare(bench: Bench, split: Split, rows: Sequence[Row], seeds: Sequence[int]) -> Comparison:
    """Measure rows on a split, each with every seed, and say when each is done."""
    found, report = {}, clock()
    for row in rows:
        own = [bench.values(row, split, seed) for seed in (seeds if row.train else seeds[:1])]
        found[row.name] = {measure: np.stack([one[measure] for one in own]) for measure in own[0]}
        report(f"{bench.name}, {split.name}: {row.name}")
    return Comparison(split, rows, len(seeds), found)
