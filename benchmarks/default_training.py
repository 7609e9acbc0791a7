"""Trainings of the encoder on folds in which nothing leaks, alone and fused with BM25.

Train queries (those of dev too, where dev was cut out of them) are divided into folds of whole families
(rayhier/dataset/families.py), or at random. A training reads the other folds; exact search then asks the queries of its
fold. What vectors and BM25 list for each query is kept, so that any weight can be read of it later. The test split is
not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from benchmarks import cache
from benchmarks.collection import folder
from benchmarks.commands import Options, clock
from benchmarks.fusion import DEPTH, Listed, listed
from benchmarks.hce.bench import Bench, validated
from benchmarks.machine import set_threads
from benchmarks.teacher import Lessons, Taught, lessons
from benchmarks.training import encode, train
from benchmarks.weight_rules import Measured, pages
from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.documents import document_texts, load_titled
from rayhier.dataset.families import families, folds
from rayhier.dataset.queries import Queries, new_answers, relevant
from rayhier.dataset.words import words
from rayhier.search.bm25 import Words
from rayhier.search.exact import exact_rows
from rayhier.spec.train import ContrastTraining, HceTraining
from rayhier.train.contrast.batch import Part
from rayhier.train.contrast.contrast import Contrast
from rayhier.train.data import judged_pairs
from rayhier.train.dev import ExactMeasure
from rayhier.train.encoder import EncoderPhase
from rayhier.train.examples import Examples
from rayhier.train.hce.hce import Hce
from rayhier.train.hce.pseudo import pseudo_pairs
from rayhier.train.hce.whiten import start_whitened
from rayhier.train.tower import HeadTower, Side

COLLECTIONS = ("scifact", "oewn_examples", "acl_title2abs")
FOLDS, MOST_ASKED = 5, 1500
"""Folds of a collection, and queries of a fold that are asked, at most."""
SHARE = 10
"""One in so many remaining families is dev, where a collection has no dev queries of its own."""

Change = Literal["none", "queries", "every document"]


@dataclass(frozen=True)
class Variant:
    """A training by its settings, and a change that the library's settings do not have; None: the untouched encoder."""

    name: str
    train: dict[str, Any] | None
    change: Change = "none"
    """`queries`: documents keep their base vectors. `every document`: documents that are a step's negatives are asked
    for by pseudo-queries too."""
    taught: float = 0.0
    """Weight of what a cross-encoder teaches (benchmarks/teacher.py); 0: nothing."""


JOINT = {"type": "hce", "objective": "joint"}
PSEUDO = {**JOINT, "hierarchy": 0, "siblings": 0}
CONTRAST = "contrast"
VARIANTS = (
    Variant("untouched", None),
    Variant(CONTRAST, {"type": "contrast"}),
    Variant("contrast, anchor 16", {"type": "contrast", "anchor": 16}),
    Variant("contrast + pseudo-queries", PSEUDO),
    Variant("contrast + pseudo-queries, anchor 16", {**PSEUDO, "anchor": 16}),
    Variant("J", JOINT),
    Variant("J, pseudo weight 1", {**JOINT, "pseudo_weight": 1}),
    Variant("J, every document", JOINT, "every document"),
    Variant("J, every document, pseudo weight 1", {**JOINT, "pseudo_weight": 1}, "every document"),
    Variant("J, every document, pseudo weight 2", {**JOINT, "pseudo_weight": 2}, "every document"),
    Variant("query head", {"type": "contrast", "anchor": 0}, "queries"),
    Variant("query head, pseudo-queries", {**PSEUDO, "anchor": 0, "start": "base"}, "queries"),
    Variant("contrast, taught .25", {"type": "contrast"}, taught=0.25),
    Variant("contrast, taught 1", {"type": "contrast"}, taught=1.0),
)
USUAL = [variant.name for variant in VARIANTS if not variant.taught]
"""Variants that are measured where none is named: a cross-encoder takes minutes to hours to train on a fold."""


@dataclass(frozen=True)
class Fold:
    """What one training reads, and the queries that are asked of it."""

    name: str
    examples: Examples
    dev: Queries
    queries: Queries
    new_Q: Bools
    """Queries none of whose answers answers a query that is trained on."""
    family_Q: Ints


class QueryTower(HeadTower):
    """A head on queries' vectors alone: documents keep their base vectors."""

    def encode(self, side: Side, rows: Ints) -> Tensor:
        """Compute vectors [n, m]: of documents the stored ones, without gradient."""
        return torch.from_numpy(self.stored[side][rows]) if side == "document" else super().encode(side, rows)


class EveryDocument(Hce):
    """HCE whose pseudo-queries ask for the negatives of a step too, so that each pushed document is pulled as well."""

    def parts(self, rows: Ints, generator: np.random.Generator) -> list[Part]:
        """Make the terms of a step's loss: judged pairs, and pseudo-queries of random documents and of negatives."""
        mined_X = self.pairs.drawn(rows, self.spec.hard_negatives.per_query, generator)
        judged = self.batch(rows, mined_X)
        pseudo = self.pseudo
        assert pseudo is not None
        drawn = generator.choice(pseudo.rows, min(len(rows), len(pseudo.rows)), replace=False)
        pushed_X = np.concatenate([mined_X, *(set_NS[set_NS >= 0] for set_NS in judged.sibling_TNS)])
        document_X = np.union1d(drawn, np.intersect1d(pushed_X, pseudo.rows))
        return [judged, self._pseudo_batch(pseudo, document_X, self.spec.pseudo_weight, generator)]


class Study:
    """A collection's folds, and what each variant lists for the queries of a fold, kept in `workdir`."""

    def __init__(self, name: str, workdir: Path, *, random: bool) -> None:
        self.name, self.random = name, random
        self.bench = Bench(name, workdir / name)
        self.kept = workdir / name / "listed"
        data = self.bench.collection
        self.documents = data.documents
        self.place = {name: row for row, name in enumerate(self.documents.ids)}
        self.name_N = np.argsort(np.argsort(np.array(self.documents.ids, dtype=object)))
        train_queries = data.queries("train")
        self.dev_is_ours = not (folder(name) / "qrels" / "dev.tsv").is_file()
        self.queries = both(train_queries, data.dev) if self.dev_is_ours else train_queries
        self.family_Q = families([words(text) for text in self.queries.texts], answers(self.queries))

    @cached_property
    def words(self) -> Words:
        """BM25 over all documents."""
        return Words(document_texts(load_titled(self.bench.collection.corpus, self.documents.ids)))

    @property
    def about(self) -> str:
        """A line that tells how the queries are divided."""
        sizes = np.bincount(self.family_Q)
        told = "at random" if self.random else "by families"
        return (
            f"{self.name}, folds {told}: {len(self.documents.ids):,} documents, {len(self.queries):,} queries in "
            f"{len(sizes):,} families, the largest of {sizes.max()}"
        )

    def divided(self, queries: int, family_Q: Ints, count: int, seed: int) -> Ints:
        """Divide queries into folds, by families or at random: the fold [q] of each."""
        return folds(np.arange(queries) if self.random else family_Q, count, seed)

    def folds(self, only: Sequence[int]) -> Iterator[Fold]:
        """Make some of the folds."""
        fold_Q = self.divided(len(self.queries), self.family_Q, FOLDS, 0)
        for fold in only:
            fold_rows = np.flatnonzero(fold_Q == fold)
            fold_rows = np.sort(np.random.default_rng(fold).permutation(fold_rows)[:MOST_ASKED])
            rest_Q, dev = fold_Q != fold, self.bench.collection.dev
            if self.dev_is_ours:
                rest = np.flatnonzero(rest_Q)
                dev_rows = rest[self.divided(len(rest), self.family_Q[rest], SHARE, fold) == 0]
                dev = self.queries.some(mask(dev_rows, len(rest_Q)))
                rest_Q = rest_Q & ~mask(dev_rows, len(rest_Q))
            examples = judged_pairs(self.queries.some(rest_Q), self.documents)
            queries = self.queries.some(mask(fold_rows, len(rest_Q)))
            new_Q = new_answers(queries, examples.answers(self.documents.results))
            told = "random " if self.random else ""
            yield Fold(f"{told}fold {fold} of {FOLDS}", examples, dev, queries, new_Q, self.family_Q[fold_rows])

    def lexical(self, fold: Fold) -> tuple[Floats, Ints]:
        """List scores and rows [q, k] of BM25 for the queries of a fold."""

        def make() -> dict[str, Any]:
            score_QK, row_QK = self.words.best(fold.queries.texts, DEPTH)
            return {"score_QK": score_QK, "row_QK": row_QK}

        arrays = cache.kept(self.kept / f"{cache.key('bm25', fold.name)}.npz", make)
        return arrays["score_QK"], arrays["row_QK"]

    def listed(self, variant: Variant, fold: Fold, seed: int) -> Listed:
        """List what a variant's vectors and BM25 find for the queries of a fold, now or from an earlier run."""
        settings = None if variant.train is None else validated(variant.train).model_dump(mode="json")
        taught = [variant.taught] if variant.taught else []
        key = cache.key(settings, variant.change, fold.name, seed if variant.train else 0, *taught)

        def make() -> Mapping[str, Any]:
            document_NM, queries = self.vectors(variant, fold, seed)
            dense = exact_rows(queries.vector_QM, document_NM, None, DEPTH)
            return vars(listed(dense, self.lexical(fold), document_NM, queries, self.place, self.name_N))

        return Listed.read(cache.kept(self.kept / f"{key}.npz", make))

    def lessons(self, fold: Fold) -> Lessons:
        """What a cross-encoder teaches that learned from the pairs of the other folds."""
        data, folder = self.bench.collection, self.kept / f"cross-encoder-{cache.key(fold.name)}"
        texts = document_texts(load_titled(data.corpus, self.documents.ids))
        return lessons(fold.examples, self.documents, texts, data.model, folder)

    def vectors(self, variant: Variant, fold: Fold, seed: int) -> tuple[Floats, Queries]:
        """Vectors of the documents, and the queries of a fold with theirs, by a variant's encoder."""
        if variant.train is None:
            return self.documents.vector_NM, fold.queries
        phase = self.phase(variant, fold, seed)
        train(phase)
        return phase.documents(), fold.queries.with_vectors(encode(phase.tower.module, fold.queries.vector_QM))

    def phase(self, variant: Variant, fold: Fold, seed: int) -> EncoderPhase:
        """Make the training of a variant, not begun: as `Collection.encoder` does, but for the variant's change."""
        data, examples, spec = self.bench.collection, fold.examples, validated(variant.train or {})
        spans = self.bench.spans if isinstance(spec, HceTraining) else None
        tower = data.tower(examples, "head", fold.dev, spans)
        if variant.change == "queries":
            assert isinstance(tower, HeadTower)
            tower = QueryTower(tower.module, tower.stored, tower.device)
        dev = ExactMeasure(fold.dev, self.documents, examples.answers(self.documents.results))
        if isinstance(spec, ContrastTraining):
            if variant.taught:
                return Taught(tower, examples, spec, seed, dev, self.lessons(fold), variant.taught)
            return Contrast(tower, examples, spec, seed, dev)
        titled = partial(load_titled, data.corpus, self.documents.ids)
        pseudo = pseudo_pairs(spec.pseudo_queries, tower, spans, titled)
        start_whitened(tower, spec, spans, dev)
        kind = EveryDocument if variant.change == "every document" else Hce
        return kind(tower, examples, pseudo, spec, seed, dev)


def mask(rows: Ints, count: int) -> Bools:
    """Mark rows among `count`."""
    marked = np.zeros(count, dtype=bool)
    marked[rows] = True
    return marked


def both(first: Queries, other: Queries) -> Queries:
    """Join two sets of queries."""
    return replace(
        first,
        ids=[*first.ids, *other.ids],
        vector_QM=np.concatenate([first.vector_QM, other.vector_QM]),
        grades=first.grades | other.grades,
        texts=[*first.texts, *other.texts],
    )


def answers(queries: Queries) -> list[list[str]]:
    """List the ids of each query's answers."""
    return [relevant(queries.grades[name]) for name in queries.ids]


def measure(study: Study, variants: Sequence[Variant], only: Sequence[int], seeds: Sequence[int]) -> Measured:
    """Measure variants on some folds, each with every seed, and say when each is done."""
    report, listed_by = clock(), dict[str, list[list[Listed]]]()
    made = []
    for fold in study.folds(only):
        made.append(fold)
        for variant in variants:
            by_seed = [study.listed(variant, fold, seed) for seed in (seeds if variant.train else seeds[:1])]
            listed_by.setdefault(variant.name, []).append(by_seed)
            report(f"{study.name}, {fold.name}: {variant.name}")
    family_A = np.concatenate([fold.family_Q for fold in made])
    part_A = np.repeat(np.arange(len(made)), [len(fold.queries) for fold in made])
    return Measured(
        study.about,
        listed_by,
        np.concatenate([fold.new_Q for fold in made]),
        family_A,
        part_A if len(made) > 1 else family_A % 2,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and measure what is missing, and print the tables of each collection, then those of all together."""
    parser = Options("Trainings of the encoder, alone and fused with BM25.", "default_training", "seeds")
    parser.add_argument("collections", nargs="*", default=COLLECTIONS, help=f"default: {' '.join(COLLECTIONS)}")
    parser.add_argument("--random", action="store_true", help="folds at random, not by families")
    parser.add_argument("--folds", type=int, default=FOLDS, help=f"measure so many of the {FOLDS} folds")
    parser.add_argument("--variants", nargs="+", default=USUAL, help="default: all that no cross-encoder teaches")
    given = parser.parse_args(arguments)
    set_threads(1)
    chosen = [variant for variant in VARIANTS if variant.name in given.variants]
    collections = []
    for name in given.collections:
        study = Study(name, given.workdir, random=given.random)
        collections.append(measure(study, chosen, range(given.folds), range(given.seeds)))
        print("\n".join(["", *pages(collections[-1:], CONTRAST)]), flush=True)
    if len(collections) > 1:
        print("\n".join(["", "All together", "", *pages(collections, None)]), flush=True)


if __name__ == "__main__":
    main()
