"""Compare trainings of the encoder on folds without leaks, alone and fused with BM25 at several weights.

Train queries are divided into folds of whole families (rayhier/dataset/families.py), or at random. If dev was cut out
of train, dev queries are divided too. A training reads the other folds. Exact search then answers the queries of its
fold. Heads are kept, and the lists of vectors and BM25 for each query. So you can read any weight later without
further training. The test split is not read.

Shapes: W weights, Q queries of a fold, A queries of all folds, M embedding size.
"""

import heapq
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from benchmarks import cache
from benchmarks.collection import Collection, folder, validated
from benchmarks.commands import Options, clock
from benchmarks.fusion import DEPTH, NDCG, RECALL, Listed, listed
from benchmarks.machine import set_threads
from benchmarks.statistics import paired
from benchmarks.tables import table
from benchmarks.training import encode, train
from rayhier.arrays import Bools, Floats, Ints, Values
from rayhier.dataset.documents import document_texts, language, load_titled
from rayhier.dataset.families import families, folds
from rayhier.dataset.queries import Queries, new_answers, relevant
from rayhier.dataset.spans import Spans
from rayhier.dataset.words import words
from rayhier.embed.encode import TextEncoder
from rayhier.embed.precision import as_embedded
from rayhier.embed.spans import SpanDrawer, lead
from rayhier.model.encoder import ResidualHead
from rayhier.search.segment.exact import exact_rows
from rayhier.search.words.bm25 import Bm25Index
from rayhier.spec.train import PseudoQueries
from rayhier.storage import schemas
from rayhier.train.data import judged_pairs
from rayhier.train.examples import Examples

COLLECTIONS = ("scifact", "oewn_examples", "acl_title2abs", "python_docs", "torch_docs")
FOLDS, MOST_ASKED = 5, 1500
"""Folds of a collection, and queries of a fold that are asked, at most."""
SHARE = 10
"""One in so many remaining families is dev, where a collection has no dev queries of its own."""
JUDGED, DRAWN = "judged pairs alone", "titles"
KEYWORDS = 6
"""Words of a pseudo-query of keywords: those of a document with the highest tf-idf."""


@dataclass(frozen=True)
class Variant:
    settings: dict[str, Any] | None
    """Settings of a training. None: the untouched encoder."""
    heads: int = 1
    """Number of seeds whose heads' mean is taken."""
    share: float = 1.0
    """Share of the trained head. The rest is the untouched encoder."""
    pseudo: str = DRAWN
    """Kind of pseudo-queries, if the training has any."""
    judged: bool = True
    """Whether a training reads judged pairs."""


SHIPPED = {"type": "contrast"}
J = {"type": "hce"}
VARIANTS = {
    "untouched": Variant(None),
    JUDGED: Variant(SHIPPED | {"objective": "supervised"}),
    "as shipped": Variant(SHIPPED),
    "as shipped, mean of 3 heads": Variant(SHIPPED, heads=3),
    "as shipped, half of the head": Variant(SHIPPED, share=0.5),
    "spans": Variant(SHIPPED, pseudo="spans"),
    "first sentences": Variant(SHIPPED, pseudo="first sentences"),
    "keywords": Variant(SHIPPED, pseudo="keywords"),
    "no judgements": Variant(SHIPPED, judged=False),
    "J": Variant(J),
    "J, siblings alone": Variant(J | {"hierarchy": 0}),
    "J, hierarchy alone": Variant(J | {"siblings": 0}),
}
WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)
FIXED = (0.1, 0.25)
"""Weights that the table of trainings shows next to the one that the other folds choose."""


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


class Study:
    """A collection's folds, and what each variant lists for the queries of a fold, kept in `workdir`."""

    def __init__(self, name: str, workdir: Path, *, random: bool) -> None:
        self.name, self.random = name, random
        self.data = Collection(name, workdir / name)
        self.kept = workdir / name / "listed"
        self.documents = self.data.documents
        self.place = {name: row for row, name in enumerate(self.documents.ids)}
        self.rule = schemas.rule(language(self.data.corpus))
        self.name_N = np.argsort(np.argsort(np.array(self.documents.ids, dtype=object)))
        train_queries = self.data.queries("train")
        self.dev_is_ours = not (folder(name) / "qrels" / "dev.tsv").is_file()
        self.queries = both(train_queries, self.data.dev) if self.dev_is_ours else train_queries
        self.family_Q = families([words(text) for text in self.queries.texts], answers(self.queries))

    @cached_property
    def words(self) -> Bm25Index:
        """BM25 over all documents."""
        texts = document_texts(load_titled(self.data.corpus, self.documents.ids))
        return Bm25Index(texts, language(self.data.corpus))

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
            rest_Q, dev = fold_Q != fold, self.data.dev
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

        arrays = cache.kept(self.kept / f"{cache.key('bm25', self.rule, fold.name)}.npz", make)
        return arrays["score_QK"], arrays["row_QK"]

    def listed(self, variant: str, fold: Fold, seed: int) -> Listed:
        """List what a variant's vectors and BM25 find for the queries of a fold, now or from an earlier run."""
        kind = VARIANTS[variant]
        settings = kind.settings
        if settings is None:
            key, heads = cache.key(None, self.rule, fold.name), range(0)
        else:
            heads = range(seed * kind.heads, (seed + 1) * kind.heads)
            key = cache.key(_told(settings), self.rule, fold.name, list(heads), kind.share, *_of(kind))

        def make() -> Mapping[str, Any]:
            document_NM, queries = self.documents.vector_NM, fold.queries
            if settings is not None:
                module = ResidualHead(document_NM.shape[1])
                mean_MM = np.mean([self.head(kind, fold, head) for head in heads], axis=0)
                module.weight.data = torch.from_numpy(np.float32(kind.share) * mean_MM)
                queries = queries.with_vectors(encode(module, queries.vector_QM))
                document_NM = encode(module, document_NM)
            dense = exact_rows(queries.vector_QM, document_NM, None, DEPTH)
            return vars(listed(dense, self.lexical(fold), document_NM, queries, self.place, self.name_N))

        return Listed.read(cache.kept(self.kept / f"{key}.npz", make))

    def head(self, kind: Variant, fold: Fold, seed: int) -> Floats:
        """Return the weights [m, m] of a trained head."""
        assert kind.settings is not None
        settings = kind.settings

        def make() -> Mapping[str, Any]:
            spec, examples = validated(settings), fold.examples
            if not kind.judged:
                examples = replace(examples, pair_P2=examples.pair_P2[:0])
            spans = None if spec.draws is None else self.pseudo(kind.pseudo)
            phase = self.data.encoder(examples, spec, seed, dev=fold.dev, spans=spans)
            began = time.monotonic()
            train(phase)
            seconds = np.float32(time.monotonic() - began)
            return {"weight": phase.learner.parameters[0].detach().numpy(), "seconds": seconds}

        kept = cache.kept(self.kept / f"{cache.key('head', _told(settings), fold.name, seed, *_of(kind))}.npz", make)
        return np.asarray(kept["weight"])

    def pseudo(self, kind: str) -> Spans | None:
        """Return pseudo-queries of a kind, one of each document that has any."""
        if kind == DRAWN:
            return self.data.spans
        table = load_titled(self.data.corpus, self.documents.ids)
        encoder = TextEncoder(self.data.model, as_embedded(self.data.spec, self.data.vectors, 0).encoder)
        match kind:
            case "spans":
                drawer = SpanDrawer.of(encoder, PseudoQueries(source="titles_and_spans"))
                rows, chosen = drawer.draw(*(table[column].to_pylist() for column in ("doc_id", "title", "text")))
            case "first sentences":
                leads = [lead("", text) for text in table["text"].to_pylist()]
                rows = [row for row, texts in enumerate(leads) if texts]
                chosen = [text for texts in leads for text in texts]
            case _:
                counts = [Counter(words(text, "none")) for text in document_texts(table)]
                frequency = Counter(word for count in counts for word in count)
                weighed = ({w: n * np.log(len(counts) / frequency[w]) for w, n in count.items()} for count in counts)
                chosen = [" ".join(heapq.nlargest(KEYWORDS, of, key=of.__getitem__)) for of in weighed]
                rows = [row for row, text in enumerate(chosen) if text]
                chosen = list(filter(None, chosen))
        vector_PM = cache.kept(
            self.kept / f"{cache.key('pseudo', kind)}.npz", lambda: {"vector": encoder.encode(chosen, "query")}
        )["vector"]
        return Spans(vector_PM, np.array(rows), pa.chunked_array([chosen]))


def _of(kind: Variant) -> list[str]:
    told = [] if kind.pseudo == DRAWN else [kind.pseudo]
    return told if kind.judged else [*told, "not judged"]


def _told(settings: dict[str, Any]) -> dict[str, Any]:
    return validated(settings).model_dump(mode="json")


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


@dataclass(frozen=True)
class Measured:
    """A collection's trainings, measured on folds."""

    about: str
    curves: Mapping[str, dict[str, Values]]
    """Training -> measure -> values [w, a] at the weights, means of seeds."""
    bm25: dict[str, Values]
    """Measure -> values [a] of BM25 alone."""
    new_A: Bools
    family_A: Ints
    part_A: Ints
    """The part of each query: its fold, or of a single fold one of two halves of the families."""


def measure(study: Study, variants: Sequence[str], only: Sequence[int], seeds: Sequence[int]) -> Measured:
    """Measure variants on some folds, each with every seed, and say when each is done."""
    report, listed_by, made = clock(), dict[str, list[list[Listed]]](), list[Fold]()
    for fold in study.folds(only):
        made.append(fold)
        for variant in variants:
            own = seeds if VARIANTS[variant].settings else seeds[:1]
            listed_by.setdefault(variant, []).append([study.listed(variant, fold, seed) for seed in own])
            report(f"{study.name}, {fold.name}: {variant}")
    family_A = np.concatenate([fold.family_Q for fold in made])
    part_A = np.repeat(np.arange(len(made)), [len(fold.queries) for fold in made])
    bm25 = [seeds[0].bm25() for seeds in next(iter(listed_by.values()))]
    return Measured(
        study.about,
        {variant: curve(own) for variant, own in listed_by.items()},
        {name: np.concatenate([values[name] for values in bm25]) for name in (NDCG, RECALL)},
        np.concatenate([fold.new_Q for fold in made]),
        family_A,
        part_A if len(made) > 1 else family_A % 2,
    )


def curve(listed_FS: Sequence[Sequence[Listed]]) -> dict[str, Values]:
    """Measure what was listed for folds and seeds at every weight: measure -> values [w, a], means of seeds."""
    at = [[[one.values(weight) for one in seeds] for seeds in listed_FS] for weight in WEIGHTS]
    return {
        name: np.stack([np.concatenate([np.mean([one[name] for one in seeds], axis=0) for seeds in row]) for row in at])
        for name in (NDCG, RECALL)
    }


def page(measured: Measured) -> list[str]:
    """Tables of a collection's trainings, all queries and those with new answers, and of every weight."""
    lines = [f"## {measured.about}", ""]
    groups = {"": np.ones(len(measured.new_A), dtype=bool)}
    groups |= {", new answers": measured.new_A} if not measured.new_A.all() else {}
    for group, in_A in groups.items():
        lines += [f"### Trainings{group} ({in_A.sum():,} queries)", "", *trainings(measured, in_A), ""]
    rows = [
        [name, *(f"{shown(n_A)}/{shown(r_A)}" for n_A, r_A in zip(own[NDCG], own[RECALL], strict=True))]
        for name, own in measured.curves.items()
    ]
    return [*lines, "### Weights", "", *table(["", *(f"{weight:g}" for weight in WEIGHTS)], rows)]


def shown(value_A: Values) -> str:
    """A mean in percent."""
    return f"{100 * value_A.mean():.1f}"


def chosen(value_WA: Values, part_A: Ints) -> Ints:
    """Choose for each query the best weight [a], by number, on the queries of all other parts."""
    return np.asarray([value_WA[:, part_A != part].mean(axis=1).argmax() for part in range(part_A.max() + 1)])[part_A]


def trainings(measured: Measured, in_A: Bools) -> list[str]:
    """A table of trainings over some queries: by vectors, at the weight that other folds choose, at fixed weights."""
    picked: dict[str, dict[str, list[Values]]] = {}
    told = {}
    for name, own in measured.curves.items():
        best_A = chosen(own[NDCG], measured.part_A)
        told[name] = "-".join(dict.fromkeys(f"{WEIGHTS[best]:g}" for best in (best_A.min(), best_A.max())))
        all_A = np.arange(len(best_A))
        picked[name] = {
            measure: [value_WA[0], value_WA[best_A, all_A], *(value_WA[WEIGHTS.index(weight)] for weight in FIXED)]
            for measure, value_WA in own.items()
        }
    places = ["vectors", "with it", *(f"at {weight:g}" for weight in FIXED)]
    head = ["", places[0], "weight", *places[1:]]
    for place in places:
        head += [f"{place}: {NDCG} over {JUDGED}", RECALL]
    bm25 = f"{shown(measured.bm25[NDCG][in_A])}/{shown(measured.bm25[RECALL][in_A])}"
    rows = [["BM25", bm25, *[""] * (len(head) - 2)]]
    for name, values in picked.items():
        cells = [f"{shown(values[NDCG][at][in_A])}/{shown(values[RECALL][at][in_A])}" for at in range(len(places))]
        over = [
            paired(values[measure][at][in_A], picked[JUDGED][measure][at][in_A], measured.family_A[in_A]).shown
            if JUDGED in picked and name != JUDGED
            else ""
            for at in range(len(places))
            for measure in (NDCG, RECALL)
        ]
        rows.append([name, cells[0], told[name], *cells[1:], *over])
    return table(head, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and measure what is missing, and print the tables of each collection."""
    parser = Options("Compare trainings of the encoder, alone and fused with BM25.", "default_training", "seeds")
    parser.add_argument("collections", nargs="*", default=COLLECTIONS, help=f"default: {' '.join(COLLECTIONS)}")
    parser.add_argument("--random", action="store_true", help="make folds at random, not by families")
    parser.add_argument("--folds", type=int, default=FOLDS, help=f"measure so many of the {FOLDS} folds")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="default: all")
    given = parser.parse_args(arguments)
    set_threads(1)
    for name in given.collections:
        study = Study(name, given.workdir, random=given.random)
        measured = measure(study, given.variants, range(given.folds), range(given.seeds))
        print("\n".join(["", *page(measured)]), flush=True)


if __name__ == "__main__":
    main()
