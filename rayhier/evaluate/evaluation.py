"""The evaluate stage: measure each seed's index and its baselines on the same queries."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from rayhier.arrays import Bools, Floats, Ints, Values
from rayhier.dataset.balance import balance
from rayhier.dataset.documents import language
from rayhier.dataset.families import asked_before, families
from rayhier.dataset.holdout import load_dev
from rayhier.dataset.measures import Judge, means
from rayhier.dataset.queries import Queries, load_answers, load_split, load_texts, new_answers, relevant
from rayhier.dataset.ranking import Ranking, stacked
from rayhier.dataset.words import words
from rayhier.evaluate.alone import seconds_of, timed_rows
from rayhier.evaluate.collection import Collection
from rayhier.evaluate.curve import Point, System, beams, measure_at, measure_curve
from rayhier.evaluate.part import ROUTER, Part
from rayhier.evaluate.systems.bm25 import Bm25
from rayhier.evaluate.systems.flat import level_system
from rayhier.evaluate.systems.hnsw import Hnsw, efforts
from rayhier.evaluate.systems.ivf import faiss_ivf, tuned_lists
from rayhier.evaluate.systems.router import router_system, widened_system
from rayhier.evaluate.systems.scann import ScannTree
from rayhier.evaluate.systems.served_path import ServedPath
from rayhier.evaluate.workers import LocalWorkers, Parts, Workers
from rayhier.model.adoption import Adoption
from rayhier.model.encoded import Encoded
from rayhier.progress import Bar, say
from rayhier.search.calibration import Calibration, ChosenBeam
from rayhier.search.fusion_weight import FusionWeight
from rayhier.search.level_similarity import LevelSimilarity
from rayhier.search.model import Model
from rayhier.search.rerank import RerankWeight
from rayhier.spec import InputError, JobSpec
from rayhier.spec.filter import Filter
from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap
from rayhier.storage.paths import locate
from rayhier.storage.pins import reading

T = TypeVar("T")
FEW_DEV = 200
"""Number of dev queries below which a warning says that a tuned number of lists is uncertain."""
LEAVES = {"faiss_ivf_spill": 2}
"""Name of a baseline -> number of lists that hold a document, where it is more than one."""


@dataclass
class SeedResult:
    """Measurements of one seed's index and of its baselines, by the name of the system."""

    seed: int
    curves: dict[str, list[Point]] = field(default_factory=dict)
    exact: dict[str, dict[str, float]] = field(default_factory=dict)
    """System -> measures, for systems without a curve, which score all documents."""
    values: dict[str, dict[str, Values]] = field(default_factory=dict)
    """System -> measure -> value of each query [q], for systems without a curve."""
    points: dict[str, Point] = field(default_factory=dict)
    """System -> its point in the report: the router's with the spec's beam, a baseline's first that visits as much."""
    runs: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    balance: dict[str, float] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    history: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """Phase of training -> metrics that it recorded, epoch by epoch."""
    seconds: dict[str, float] = field(default_factory=dict)
    chosen: ChosenBeam | None = None
    """The beam that dev queries chose; None if they chose none."""
    served_path: dict[str, dict[str, float]] = field(default_factory=dict)
    """System -> measures and costs (visited, leaves, calls, ms) of the index with BM25 or re-ranked, as it is
    served."""
    served_values: dict[str, dict[str, Values]] = field(default_factory=dict)
    """System -> measure -> value of each query [q], of the same systems and the router with the spec's beam."""
    weight: FusionWeight | None = None
    """Weight of BM25 that dev queries chose; None where none was chosen."""
    beside: RerankWeight | None = None
    """Weight of the search's score beside the cross-encoder's that dev queries chose; None where none was chosen."""
    adoption: Adoption | None = None
    """The decision whether the trained encoder is kept; None where `encoder.adopt` always keeps it, or nothing
    trained."""
    best: dict[str, dict[str, float]] = field(default_factory=dict)
    """Phase of training -> metrics of the epoch whose weights it kept."""
    others: dict[str, dict[str, float]] = field(default_factory=dict)
    """System -> measures over the queries that neither train nor choose. Empty if no query is left out."""

    def settled(self, spec: JobSpec) -> JobSpec:
        """Return the spec with the seed's own weight of BM25."""
        return spec.settled(None if self.weight is None else self.weight.weight)


@dataclass(frozen=True)
class Evaluation:
    """Measurements of all seeds, and counts that they share."""

    documents: int
    """Number of documents that were searched: all, or those that match the filter."""
    queries: int
    lists: dict[str, int]
    """Name of a baseline that cuts the corpus into lists (groups of documents, like leaves) -> its number of lists."""
    seeds: list[SeedResult]
    new_Q: Bools
    """True [q] where none of a query's answers is the answer of a train query."""
    family_Q: Ints
    """Number [q] of each query's family: queries that share an answer or half of their words."""
    asked_before: dict[str, int]
    """Number of `queries`, and of queries that also train or choose, `by_id` or `by_text`. Empty if no query does."""
    level: int | None = None
    """Level of ReTreever's tree by which the index is searched; None where a query visits leaves."""
    cut: dict[str, Any] | None = None
    """How dev was cut out of train, as the record of the corpus says. None if dev has its own judgements."""
    corpus: int | None = None
    """Number of documents of the corpus, where a filter chose some; else None."""
    left_out: int | None = None
    """Number of judged queries that are not measured because no answer matches the filter; None without a filter."""


@dataclass(frozen=True)
class SeedIndex:
    """The published model of a seed, and its index, opened in parts."""

    model: Model
    index: Artifact
    collection: Collection
    """Documents of the index with their trained vectors, each document once."""
    history: dict[str, list[dict[str, float]]]
    """Phase of training -> metrics that it recorded, epoch by epoch."""
    adoption: Adoption | None = None
    """The decision whether the trained encoder is kept; None where `encoder.adopt` always keeps it, or nothing
    trained."""
    best: dict[str, dict[str, float]] = field(default_factory=dict)
    """Phase of training -> metrics of the epoch whose weights it kept."""

    def encode(self, queries: Queries) -> Encoded:
        """Encode queries for the router of the seed."""
        return self.model.encode_stored(queries.vector_QM, lambda: queries.texts)


def load_index(
    spec: JobSpec, model: Artifact, index: Artifact, workers: Workers, calibration: Artifact | None = None
) -> SeedIndex:
    """Open a published model and its index; each worker reads a share of the index's shards.

    `calibration` is the index's, if dev queries choose the beam.
    """
    shards = LeafMap.open(index.root, BUILT).manifest.shards
    chosen = Calibration.open(calibration) if spec.chooses_beam and calibration is not None else None
    trained = Model.open(model, spec, calibration=chosen)
    similarity = trained.flat_similarity if isinstance(trained.flat_similarity, LevelSimilarity) else None
    arguments = [(str(index.folder), numbers, similarity, spec.measured) for numbers in shares(shards, workers.count)]
    parts = workers.start(Part.of_shards, arguments)
    history = files.read_json(model.path("metrics.json"))
    best = model.record.counts.get("best", {})
    return SeedIndex(trained, index, Collection.of(parts), history, Adoption.open(model), best)


def load_base(corpus: Artifact, vectors: Artifact, workers: Workers, where: Filter | None = None) -> Collection:
    """Load the corpus with the base encoder's vectors; with a filter, only documents that match are searched."""
    names = vectors.names("documents/")
    folders = str(corpus.folder), str(vectors.folder)
    arguments = [(*folders, [names[number] for number in numbers], where) for numbers in shares(names, workers.count)]
    return Collection.of(workers.start(Part.of_vectors, arguments))


def shares(things: Sequence[object], workers: int) -> list[list[int]]:
    """Divide the positions of a sequence, in order, among at most `workers` workers, each with one or more.

    >>> shares("abcde", 2)
    [[0, 1, 2], [3, 4]]
    """
    parts = np.array_split(np.arange(len(things)), min(workers, len(things)))
    return [part.tolist() for part in parts]


def evaluate(
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    models: Mapping[int, tuple[Artifact, Artifact]],
    workers: Workers | None = None,
    read: Mapping[tuple[str, int | None], Artifact] | None = None,
    test: Artifact | None = None,
) -> Evaluation:
    """Measure the index of every seed (seed -> model, index) and the spec's baselines.

    `read` are further artifacts that searches read, by kind and seed (None: all seeds). `test` has the test split;
    where it is None, `corpus` has it. InputError where the split has no judgements, or the filter leaves no query.
    """
    workers, split = workers or LocalWorkers(), spec.evaluate.split
    queries = load_split(split, corpus, vectors, test)
    if not queries:
        raise InputError(
            f"evaluate.split: got {spec.evaluate.split!r}, which has no judgements; allowed: a split with judgements"
        )
    base = load_base(corpus, vectors, workers, spec.measured)
    dev, all_judged = load_dev(corpus, vectors, base.holdout, base.exact), len(queries)
    if spec.measured is not None:
        queries, dev = (about_matching(chosen, base) for chosen in (queries, dev))
        if not queries:
            raise InputError(
                f"evaluate.filter: no answer of the {all_judged:,} {spec.evaluate.split} queries matches; "
                "allowed: a filter that answers match"
            )
    earlier = load_texts(corpus, ["train"] if split == "dev" else ["train", "dev"])
    asked_Q2 = asked_before(dict(zip(queries.ids, queries.texts, strict=True)), earlier)
    if np.logical_or(*asked_Q2).all():
        raise InputError(f"evaluate.filter: all {len(queries):,} {split} queries that match also train or choose")
    work = _Work(spec, corpus, base, queries, dev, workers)
    with Bar("evaluate", len(models), "seeds") as bar:
        for seed, (model, index) in models.items():
            with reading(index.root, BUILT):
                artifacts = {kind: artifact for (kind, of), artifact in (read or {}).items() if of in (None, seed)}
                work.add(seed, load_index(spec, model, index, workers, artifacts.get("calibration")))
                folders = {kind: str(artifact.folder) for kind, artifact in artifacts.items()}
                if spec.measures_words:
                    work.served_path("bm25", model, index, folders, mode="hybrid", budget=0)
                if spec.search.reranking is not None:
                    work.served_path(spec.search.rerank.type, model, index, folders)
            bar.advance(note=f"seed {seed}")
    new_Q = new_answers(queries, load_answers(corpus, "train"))
    before = work.others(*asked_Q2)
    cut = corpus.record.counts.get("cut")
    answers = [relevant(queries.grades[query]) for query in queries.ids]
    family_Q = families([words(text, language(corpus)) for text in queries.texts], answers)
    evaluation = Evaluation(
        base.matching, len(queries), work.lists, work.results, new_Q, family_Q, before, work.level, cut
    )
    if spec.measured is None:
        return evaluation
    return replace(evaluation, corpus=base.documents, left_out=all_judged - len(queries))


def about_matching(queries: Queries, base: Collection) -> Queries:
    """Select the queries with an answer among the documents that are searched, and only judgements of these."""
    return queries.about(base.judged({name for grades in queries.grades.values() for name in grades}))


def baselines(spec: JobSpec) -> tuple[str, ...]:
    """Return the baselines that the spec names, and those that its index is to be compared with.

    These are `faiss_ivf_spill` where documents have two leaves, and `bm25` where searches use it.
    """
    two = ("faiss_ivf_spill",) if spec.leaves_per_document > 1 else ()
    words = ("bm25",) if spec.measures_words else ()
    return tuple(dict.fromkeys((*spec.evaluate.baselines, *two, *words)))


class _Work:
    """An evaluation in progress. Systems that do not depend on the seed are measured only once."""

    def __init__(
        self,
        spec: JobSpec,
        corpus: Artifact,
        base: Collection,
        queries: Queries,
        dev: Queries,
        workers: Workers,
    ) -> None:
        self.spec, self.corpus, self.base, self.workers = spec, corpus, base, workers
        self.queries, self.dev = queries, dev
        self.judge = Judge(queries, spec.evaluate.measures)
        self.k = max(spec.search.k, *(int(measure.partition("@")[2]) for measure in spec.evaluate.measures))
        self.lists: dict[str, int] = {}
        self.level: int | None = None
        self._tuned: dict[str, int] = {}
        self.results: list[SeedResult] = []

    def add(self, seed: int, seed_index: SeedIndex) -> None:
        """Measure one seed: the router first, because a baseline is reported where it visits as much as the router."""
        result = SeedResult(seed, history=seed_index.history, adoption=seed_index.adoption, best=seed_index.best)
        result.chosen = seed_index.model.chosen
        encoded, collection = seed_index.encode(self.queries), seed_index.collection
        sizes = collection.sizes(ROUTER)
        result.balance, result.sizes = balance(sizes), sizes.tolist()
        model, router = seed_index.model, str(self.spec.router.type)
        if isinstance(similarity := model.flat_similarity, LevelSimilarity):
            self.level, listed = similarity.level, self.spec.search.shortlisted(self.k)
            self._curve(
                result,
                router,
                lambda: level_system(router, collection, model.tree, similarity, encoded, self.k, listed),
            )
        else:
            as_searched = self._as_searched(router, seed_index, encoded)
            self._curve(
                result, router, lambda: router_system(router, collection, model.router, encoded, self.k), as_searched
            )
        for name in baselines(self.spec):
            match name:
                case "exact":
                    self._once(result, name, lambda: self.base.exact(self.queries.vector_QM, self.k))
                case "bm25":
                    self._once(result, name, self._bm25)
                case "exact_same_encoder":
                    self._whole(result, name, lambda: collection.exact(encoded.numpy, self.k))
                case "hnsw":
                    self._hnsw(result, encoded, seed_index)
                case "scann":
                    self._scann(result, encoded, seed_index)
                case "faiss_ivf" | "faiss_ivf_same_encoder" | "faiss_ivf_spill":
                    self._ivf(result, name, encoded, seed_index)
        collection.parts.close()
        self.results.append(result)

    def served_path(
        self,
        suffix: str,
        model: Artifact,
        index: Artifact,
        folders: Mapping[str, str],
        mode: str | None = None,
        budget: int | None = None,
    ) -> None:
        """Measure the last seed's index on the search path that serving uses, with BM25 or re-ranked.

        Queries are split among workers; `suffix` ends the system's name; `folders` hold the artifacts that
        re-ranking reads, by kind.
        """
        result, began = self.results[-1], time.perf_counter()
        calibration = folders.get("calibration")
        if calibration is not None:
            chosen = Artifact.open(locate(calibration))
            result.weight, result.beside = FusionWeight.open(chosen), RerankWeight.open(chosen)
        spec = result.settled(self.spec)
        name = f"{spec.router.type}+{suffix}"
        opened = spec.model_dump(mode="json"), str(model.folder), str(index.folder), folders
        groups = shares(self.queries.texts, self.workers.count)
        parts = self.workers.start(ServedPath.open, [opened] * len(groups))
        arguments = [([self.queries.texts[row] for row in rows], self.k, mode, budget) for rows in groups]
        answers = parts.each(ServedPath.rank, arguments)
        parts.close()
        ranking, taken = stacked([part for part, _ in answers]), sum(seconds for _, seconds in answers)
        calls_Q = np.zeros(0) if ranking.calls_Q is None else ranking.calls_Q
        result.served_path[name] = {
            **self.judge.mean(ranking),
            "visited": float(ranking.visited_Q.mean()) / self.base.matching,
            "leaves": float(ranking.leaves_Q.mean()),
            "calls": float(calls_Q.mean()) if len(calls_Q) else 0.0,
            "ms": 1e3 * taken / len(self.queries),
        }
        result.served_values[name] = self.judge.values(ranking)
        result.runs[name], result.seconds[name] = self.judge.run(ranking), time.perf_counter() - began

    def others(self, id_Q: Bools, text_Q: Bools) -> dict[str, int]:
        """Count the queries that also train or choose. If there are any, measure every system without them."""
        others_Q = ~(id_Q | text_Q)
        if others_Q.all():
            return {}
        for result in self.results:
            for name, run in result.runs.items():
                values = self.judge.values_of(run)
                result.others[name] = means({measure: value_Q[others_Q] for measure, value_Q in values.items()})
        return {"queries": len(others_Q), "by_id": int(id_Q.sum()), "by_text": int(text_Q.sum())}

    def _as_searched(self, name: str, seed_index: SeedIndex, encoded: Encoded) -> System | None:
        """The router as the spec searches with its filter; None without a filter."""
        if self.spec.measured is None:
            return None
        return widened_system(name, seed_index.collection, seed_index.model, encoded, self.k, self.spec.measured)

    def _ivf(self, result: SeedResult, name: str, encoded: Encoded, seed_index: SeedIndex) -> None:
        base, leaves = name == "faiss_ivf", LEAVES.get(name, 1)
        collection, query_QM = (self.base, self.queries.vector_QM) if base else (seed_index.collection, encoded.numpy)
        self.lists[name] = lists = self._list_count(name, seed_index, result.seed)
        self._curve(result, name, lambda: faiss_ivf(name, collection, query_QM, self.k, lists, result.seed, leaves))

    def _list_count(self, name: str, seed_index: SeedIndex, seed: int) -> int:
        """Number of lists of a k-means baseline: the spec's, or tuned on dev with the first seed."""
        base, setting = name == "faiss_ivf", self.spec.evaluate.lists
        collection = self.base if base else seed_index.collection
        if setting != "auto":
            return min(setting, collection.documents)
        if name not in self._tuned:
            if not self.dev:
                raise InputError(
                    "evaluate.lists: got 'auto', but no dev query has an answer that matches evaluate.filter; "
                    "allowed: a number"
                )
            dev = self.dev if base else self.dev.with_vectors(seed_index.encode(self.dev).numpy)
            self._tuned[name] = lists = tuned_lists(name, collection, dev, seed, LEAVES.get(name, 1))
            if len(dev.ids) < FEW_DEV:
                say(
                    f"  {name}: {lists} lists were chosen by only {len(dev.ids)} dev queries, another number may serve "
                    "it better: compare with some by --set evaluate.lists=N"
                )
        return self._tuned[name]

    def _hnsw(self, result: SeedResult, encoded: Encoded, seed_index: SeedIndex) -> None:
        widths = efforts(seed_index.collection.documents)
        graph = self.workers.alone(Hnsw.of_index, str(seed_index.index.folder))
        self._library(result, "hnsw", encoded, seed_index, widths, 0.0, graph, Hnsw.rank, Hnsw.alone)

    def _scann(self, result: SeedResult, encoded: Encoded, seed_index: SeedIndex) -> None:
        """Measure ScaNN, with as many partitions as the k-means control has lists."""
        self.lists["scann"] = lists = self._list_count("faiss_ivf_same_encoder", seed_index, result.seed)
        tree = self.workers.alone(ScannTree.of_index, str(seed_index.index.folder), lists)
        self._library(result, "scann", encoded, seed_index, beams(lists), float(lists), tree, ScannTree.rank)

    def _library(
        self,
        result: SeedResult,
        name: str,
        encoded: Encoded,
        seed_index: SeedIndex,
        widths: Sequence[int],
        routing: float,
        alone: Parts[T],
        rank: Callable[[T, Floats, int, int], Ranking],
        single: Callable[[T, Floats, int, int], object] | None = None,
    ) -> None:
        """Measure a library's index over all vectors, built in a separate process; `single` is timed."""

        def seconds(width: int) -> Values:
            rows = [encoded.numpy[row : row + 1] for row in timed_rows(len(encoded)).tolist()]
            return alone.call(seconds_of, single or rank, [(query, width, self.k) for query in rows])[0]

        def system() -> System:
            queries = alone.send(encoded.numpy)
            return System(
                name,
                seed_index.collection.documents,
                widths,
                lambda width: alone.call(rank, queries, width, self.k)[0],
                lambda _: routing,
                None if single is None else seconds,
            )

        self._curve(result, name, system)
        alone.close()

    def _bm25(self) -> Ranking:
        alone = self.workers.alone(Bm25.of_corpus, str(self.corpus.folder), self.spec.measured)
        (ranking,) = alone.call(Bm25.rank, list(self.queries.texts), self.k)
        alone.close()
        return ranking

    def _once(self, result: SeedResult, name: str, rank: Callable[[], Ranking]) -> None:
        """Measure a system that does not depend on the seed, once; later seeds take over the first one's results."""
        if not self.results:
            self._whole(result, name, rank)
            return
        first = self.results[0]
        result.values[name], result.exact[name] = first.values[name], first.exact[name]
        result.runs[name], result.seconds[name] = first.runs[name], 0.0

    def _whole(self, result: SeedResult, name: str, rank: Callable[[], Ranking]) -> None:
        began = time.perf_counter()
        ranking = rank()
        result.values[name] = self.judge.values(ranking)
        result.exact[name] = means(result.values[name])
        result.runs[name] = self.judge.run(ranking)
        result.seconds[name] = time.perf_counter() - began

    def _curve(
        self, result: SeedResult, name: str, make: Callable[[], System], as_searched: System | None = None
    ) -> None:
        """Measure a system's curve and its point in the report; the router's point is measured on `as_searched`."""
        began = time.perf_counter()
        system = make()
        curve = list(measure_curve(system, self.judge))
        router = self.spec.router.type
        if len(curve) == 1:
            beam = curve[0].beam
        elif name == router:
            chosen, size = result.chosen, (len(result.sizes), sum(result.sizes))
            beam = self.spec.search.leaves_visited(*size) if chosen is None else min(chosen.beam, size[0])
        else:
            as_much = result.points[router].visited_mean
            beam = next((point.beam for point in curve if point.visited_mean >= as_much), curve[-1].beam)
        point, ranking = measure_at(as_searched or system, self.judge, beam)
        if name == router:
            result.served_values[name] = self.judge.values(ranking)
        result.curves[name], result.points[name] = curve, point
        result.runs[name] = self.judge.run(ranking)
        result.seconds[name] = time.perf_counter() - began
