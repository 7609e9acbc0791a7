"""Compare the predicted gain of a trained encoder with its real gain, on small collections.

Small collections are parts of larger ones: halves of SciFact, topics of acl_title2abs, and parts of speech of
oewn_examples. Cranfield is whole, because it has no train queries. Half of a collection's train and dev queries, by
families, measure the gain. All, some or none of the other queries are train and dev queries. The test split is read of
cranfield only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cache
from benchmarks.collection import Collection, validated
from benchmarks.commands import Options, clock
from benchmarks.default_training import answers, both
from benchmarks.fusion import DEPTH, NDCG, listed
from benchmarks.machine import set_threads
from benchmarks.tables import table
from benchmarks.training import encode, train
from rayhier.arrays import Ints, Values
from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.cluster.neighbours import nearest
from rayhier.dataset.documents import Documents, document_texts, load_titled
from rayhier.dataset.families import families, folds
from rayhier.dataset.holdout import hash_ids
from rayhier.dataset.queries import Queries, relevant
from rayhier.dataset.spans import Spans, span_queries
from rayhier.dataset.words import words
from rayhier.embed.precision import as_embedded
from rayhier.model.adoption import Adoption
from rayhier.search.segment.exact import exact_rows
from rayhier.search.words.bm25 import Bm25Index
from rayhier.search.words.fusion_weight import WEIGHTS, best
from rayhier.spec.search import UNTAUGHT_WEIGHT
from rayhier.train.adopt import Searches, at_best, by_folds, needs_folds, weights
from rayhier.train.contrast import Contrast
from rayhier.train.data import judged_pairs
from rayhier.train.dev_measures import ExactMeasure
from rayhier.train.examples import Examples
from rayhier.train.loop import best_row
from rayhier.train.phases import encoder_phase
from rayhier.train.tower import Tower, build_tower

MOST_ASKED, MOST_TAUGHT = 1_500, 1_000
"""Queries of a collection that are asked, and that are trained on with dev's, at most."""
TOPICS, NOUNS = 5, 2
"""Topics of acl_title2abs, and of the nouns of oewn_examples."""
CONTRAST, JOINT = {"type": "contrast"}, {"type": "hce"}
UNSUPERVISED = CONTRAST | {"objective": "documents"}
SIZES = (MOST_TAUGHT, 200)
"""Train and dev queries together, at most."""


@dataclass(frozen=True)
class Small:
    """A small collection: some documents of a larger one, and the queries whose answers all lie in them."""

    name: str
    data: Collection
    row_N: Ints
    queries: Queries
    shared: bool = False
    """True if train, dev and asked queries may share answers, as where a collection's queries are divided at random."""

    @cached_property
    def documents(self) -> Documents:
        """The documents, in the order of the larger collection."""
        larger = self.data.documents
        return Documents([larger.ids[row] for row in self.row_N], larger.vector_NM[self.row_N])

    @cached_property
    def spans(self) -> Spans:
        """Pseudo-queries of the documents."""
        larger = self.data.spans
        assert larger is not None
        place = np.full(len(self.data.documents.ids), -1)
        place[self.row_N] = np.arange(len(self.row_N))
        some = larger[place[larger.row_P] >= 0]
        return Spans(some.vector_PM, place[some.row_P], some.texts)

    @cached_property
    def words(self) -> Bm25Index:
        """BM25 over the documents."""
        return Bm25Index(document_texts(load_titled(self.data.corpus, self.documents.ids)))

    @cached_property
    def halves(self) -> Ints:
        """Half [q] of each query, by families; all are of half 0 where no query may teach."""
        if self.data.name == "cranfield":
            return np.zeros(len(self.queries), np.int64)
        return folds(self.families(self.queries), 2, 0)

    def families(self, queries: Queries) -> Ints:
        """Number the family [q] of each query; each is alone where queries may share answers."""
        if self.shared:
            return np.arange(len(queries))
        return families([words(text) for text in queries.texts], answers(queries))

    @property
    def asked(self) -> Queries:
        """The queries that tell what a training gains."""
        return self.queries.some((self.halves == 0) & (np.cumsum(self.halves == 0) <= MOST_ASKED))

    def taught(self, count: int) -> tuple[Queries, Queries]:
        """Train queries and dev queries, a tenth, together `count` or all: by families."""
        rest = self.queries.some(self.halves == 1)
        rest = rest.some(np.isin(hash_ids(rest.ids), np.sort(hash_ids(rest.ids))[:count]))
        fold_Q = folds(self.families(rest), 10, 0)
        return rest.some(fold_Q != 0), rest.some(fold_Q == 0)


@dataclass(frozen=True)
class Case:
    """A training on a small collection; `count` train and dev queries, 0: without judgements."""

    small: Small
    train: dict[str, Any]
    count: int

    @property
    def name(self) -> str:
        """Name of the training and what taught it."""
        kind = {"contrast": "contrast", "hce": "joint"}[self.train["type"]] if self.count else "documents"
        return f"{kind}, {self.count} queries" if self.count else kind

    def measured(self, workdir: Path, seed: int) -> "Measured":
        """Measure what the training gains, and what `encoder.adopt` decides, now or from an earlier run."""
        settings = validated(self.train).model_dump(mode="json")
        key = cache.key(settings, self.small.name, self.count, seed)
        arrays = cache.kept(workdir / "cases" / f"{key}.npz", lambda: self._measure(seed))
        dev_Q, trained_Q = arrays["dev base"][0], arrays["dev trained"][0]
        adoption = Adoption.of("dev queries" if self.count else "pseudo-queries", dev_Q, trained_Q)
        if self.count and needs_folds(self._read[0], len(self.dev)):
            by_fold = cache.kept(workdir / "cases" / f"{key}.hybrid.npz", lambda: self._by_folds(seed))
            adoption = Adoption.of("train queries in folds", by_fold["base"], by_fold["trained"], mode="hybrid")
        return Measured(self, arrays, adoption)

    def _measure(self, seed: int) -> dict[str, Values]:
        phase, documents = self.phase(seed), self.documents
        loop = train(phase)
        document_NM, module = phase.documents(), phase.tower.module
        result = {"epoch": np.array(best_row(loop.history)["epoch"])}
        place = {name: row for row, name in enumerate(documents.ids)}
        name_N = np.argsort(np.argsort(np.array(documents.ids, dtype=object)))
        for name, queries in {"dev": self.dev, "asked": self.small.asked}.items():
            trained = queries.with_vectors(encode(module, queries.vector_QM))
            lexical = self.small.words.best(queries.texts, DEPTH)
            for state, vector_NM, of in (("base", documents.vector_NM, queries), ("trained", document_NM, trained)):
                dense = exact_rows(of.vector_QM, vector_NM, None, DEPTH)
                lists = listed(dense, lexical, vector_NM, of, place, name_N)
                result[f"{name} {state}"] = np.stack([lists.values(weight)[NDCG] for weight in WEIGHTS])
        return result

    def _by_folds(self, seed: int) -> dict[str, Values]:
        tower = self.phase(seed).tower
        searches = Searches(self.documents, lambda: self.small.words)
        before = weights(tower.module)
        base_WQ, trained_WQ, _ = by_folds(tower, before, self._read[0], searches, self.make(seed), carried_out)
        return {"base": at_best(base_WQ), "trained": at_best(trained_WQ)}

    @property
    def documents(self) -> Documents:
        """The documents of the collection."""
        return self.small.documents

    @cached_property
    def _read(self) -> tuple[Examples, Queries, Spans]:
        """What the training reads: pairs, dev queries and pseudo-queries."""
        if self.count:
            taught, dev = self.small.taught(self.count)
            return judged_pairs(taught, self.documents), dev, self.small.spans
        dev, spans = span_queries(self.small.spans, self.documents.ids, self.documents.results)
        none_P2 = np.empty((0, 2), dtype=np.int64)
        return Examples(self.documents.vector_NM, self.documents.vector_NM, none_P2, same=True), dev, spans

    @property
    def dev(self) -> Queries:
        """The dev queries, or pseudo-queries in their place."""
        return self._read[1]

    def phase(self, seed: int) -> Contrast:
        """Make the training, not begun."""
        data, (examples, dev, spans) = self.small.data, self._read
        encoder = as_embedded(data.spec, data.vectors, 0).encoder.model_copy(update={"train": "head"})
        tower = build_tower(encoder, data.model, data.corpus, self.documents, examples, dev, spans)
        return self.make(seed)(tower, examples)

    def make(self, seed: int) -> Callable[[Tower, Examples], Contrast]:
        """Return a function that makes the training of a tower on examples."""
        documents, spec, spans = self.documents, validated(self.train), self._read[2]
        measure = ExactMeasure(self.dev, documents, self._read[0].answers(documents.results))
        titled = partial(load_titled, self.small.data.corpus, documents.ids)
        return partial(encoder_phase, spec, spans=spans, titled=titled, seed=seed, measure=measure)


def carried_out(_: str, phase: Contrast) -> None:
    """Carry out a training under a name."""
    train(phase)


@dataclass(frozen=True)
class Measured:
    """What a training gained, query by query, and what was decided before that was known."""

    case: Case
    arrays: Mapping[str, Values]
    """nDCG@10 [w, q] of dev and asked queries by base and trained encoder, at weights of BM25."""
    adoption: Adoption

    @property
    def by_vectors(self) -> Values:
        """Real gain [q] by vectors, in points."""
        return np.asarray(100 * (self.arrays["asked trained"][0] - self.arrays["asked base"][0]))

    @property
    def hybrid(self) -> Values:
        """Real gain [q] of hybrid search, each encoder at the weight that dev queries choose for it, in points."""
        usual = WEIGHTS.index(UNTAUGHT_WEIGHT)
        base, trained = (
            self.arrays[f"asked {state}"][
                WEIGHTS.index(best(self.arrays[f"dev {state}"])) if self.case.count else usual
            ]
            for state in ("base", "trained")
        )
        return np.asarray(100 * (trained - base))


def smalls(workdir: Path) -> Iterator[Small]:
    """Cut the small collections from the larger ones."""
    for name in ("scifact", "cranfield", "acl_title2abs", "oewn_examples"):
        data = Collection(name, workdir / name)
        if name == "cranfield":
            yield Small(name, data, np.arange(len(data.documents.ids)), data.queries("test"))
            continue
        queries = both(data.queries("train"), data.dev)
        for part, row_N in parts(name, data.documents):
            inside = {data.documents.ids[row] for row in row_N}
            whole_Q = np.array([set(relevant(queries.grades[query])) <= inside for query in queries.ids])
            yield Small(f"{name}, {part}", data, row_N, queries.some(whole_Q))
            if name == "scifact":
                yield Small(f"{name}, {part}, shared answers", data, row_N, queries.some(whole_Q), shared=True)


def parts(name: str, documents: Documents) -> Iterator[tuple[str, Ints]]:
    """Name and rows of the parts into which documents of a collection are cut."""
    if name == "scifact":
        half_N = hash_ids(documents.ids) % 2
        yield from ((f"half {half + 1}", np.flatnonzero(half_N == half)) for half in range(2))
    elif name == "acl_title2abs":
        yield from topics(documents, np.arange(len(documents.ids)), TOPICS, "topic")
    else:
        kind_N = np.array([name[-1] for name in documents.ids])
        yield "verbs", np.flatnonzero(kind_N == "v")
        yield "adjectives", np.flatnonzero((kind_N == "a") | (kind_N == "s"))
        yield "adverbs", np.flatnonzero(kind_N == "r")
        yield from topics(documents, np.flatnonzero(kind_N == "n"), NOUNS, "nouns, topic")


def topics(documents: Documents, row_N: Ints, count: int, name: str) -> Iterator[tuple[str, Ints]]:
    """Cut rows of documents into topics by k-means."""
    vector_NM = documents.vector_NM[row_N]
    topic_N = nearest(vector_NM, spherical_kmeans(vector_NM, count, 0), 1)[0][:, 0]
    yield from ((f"{name} {topic + 1}", row_N[topic_N == topic]) for topic in range(count))


def cases(small: Small) -> Iterator[Case]:
    """List the trainings of a small collection."""
    if small.data.name != "cranfield":
        sizes = [count for count in SIZES if count == SIZES[-1] or (small.halves == 1).sum() > SIZES[-1]]
        yield from (Case(small, CONTRAST, count) for count in sizes)
        yield Case(small, JOINT, 200)
    if not small.shared:
        yield Case(small, UNSUPERVISED, 0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and measure what is missing, and print the table."""
    parser = Options("Predicted and real gains of a trained encoder over its base.", "adopt", "seeds")
    given = parser.parse_args(arguments)
    set_threads(1)
    report, rows = clock(), list[Measured]()
    for small in smalls(given.workdir):
        report(f"{small.name}: {len(small.row_N):,} documents, {len(small.queries):,} queries")
        for case in cases(small):
            for seed in range(given.seeds):
                rows.append(case.measured(given.workdir, seed))
                report(f"{small.name}, {case.name}")
    print("\n".join(page(rows)))


def page(rows: Sequence[Measured]) -> list[str]:
    """The table of predicted and real gains, and how often a decision was right."""
    head = ["collection", "training", "predicted gain", "by", "kept", "real gain by vectors", "real gain, hybrid"]
    cells = [
        [
            row.case.small.name,
            row.case.name,
            f"{100 * row.adoption.gain:+.1f} ± {100 * row.adoption.error:.1f}",
            f"{row.adoption.queries:,} {row.adoption.source}",
            "yes" if row.adoption.adopted else "no",
            shown(row.by_vectors),
            shown(row.hybrid),
        ]
        for row in rows
    ]
    return [*table(head, cells), "", *summary(rows)]


def shown(gain_Q: Values) -> str:
    """A mean in points with its standard error."""
    return f"{gain_Q.mean():+.1f} ± {gain_Q.std(ddof=1) / len(gain_Q) ** 0.5:.1f}"


def summary(rows: Sequence[Measured]) -> list[str]:
    """Sentences on the decisions: how many trainings were kept, how often rightly, and the worst of them."""
    kept = [row for row in rows if row.adoption.adopted]
    lines = [f"{len(kept)} of {len(rows)} trainings are kept."]
    for name, gains in (
        ("by vectors", [row.by_vectors.mean() for row in rows]),
        ("in hybrid search", [row.hybrid.mean() for row in rows]),
    ):
        of_kept = [gain for gain, row in zip(gains, rows, strict=True) if row.adoption.adopted]
        of_left = [gain for gain, row in zip(gains, rows, strict=True) if not row.adoption.adopted]
        lines.append(
            f"Real gains {name}: of those kept, {sum(gain > 0 for gain in of_kept)} of {len(of_kept)} are above 0, "
            f"the worst {min(of_kept, default=0):+.1f}, the mean {np.mean(of_kept or [0]):+.1f} points; of the others "
            f"{sum(gain > 0 for gain in of_left)} of {len(of_left)} would have gained, the mean "
            f"{np.mean(of_left or [0]):+.1f}, the worst {min(of_left, default=0):+.1f}."
        )
    return lines


if __name__ == "__main__":
    main()
