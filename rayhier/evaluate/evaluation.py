"""The evaluate stage: measure each seed's index and its baselines on the same queries."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from rayhier.arrays import Bools, Ints, Values
from rayhier.dataset.balance import balance
from rayhier.dataset.documents import language
from rayhier.dataset.families import asked_before, families
from rayhier.dataset.holdout import load_dev
from rayhier.dataset.measures import Judge, means
from rayhier.dataset.queries import Queries, load_answers, load_split, load_texts, new_answers, relevant
from rayhier.dataset.ranking import Ranking
from rayhier.dataset.words import words
from rayhier.evaluate.alone import timed_rows
from rayhier.evaluate.baselines.bm25 import Bm25
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.evaluate.baselines.hnsw import Hnsw, efforts
from rayhier.evaluate.baselines.ivf import KmeansIvf, tuned_lists
from rayhier.evaluate.baselines.scann import ScannTree
from rayhier.evaluate.baselines.untrained import UNTRAINED, choosing_queries, chosen_weight
from rayhier.evaluate.curve import Point, System, beams, measure_at, measure_curve
from rayhier.evaluate.index_search import IndexSearch, as_searched, index_system, level_system
from rayhier.model.adoption import Adoption
from rayhier.model.encoded import Encoded
from rayhier.progress import log, say
from rayhier.search.rerank import RerankWeight
from rayhier.search.routing.chosen_beam import ChosenBeam
from rayhier.search.routing.query_precision import QueryPrecision
from rayhier.search.routing.routes import Model
from rayhier.search.words.fusion_weight import FusionWeight
from rayhier.spec import InputError, JobSpec
from rayhier.spec.search import HybridSpec
from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap
from rayhier.storage.pins import reading

Named = dict[str, str]
"""`system` -> the name of a system that is measured."""
FEW_DEV = 200
"""Number of dev queries below which a warning says that a tuned number of lists is uncertain."""
LEAVES = {"faiss_ivf_spill": 2}
"""Name of a baseline -> number of lists that hold each document, if more than one."""


@dataclass
class SeedResult:
    """Measurements of one seed's index and of its baselines, by the name of the system."""

    seed: int
    curves: dict[str, list[Point]] = field(default_factory=dict)
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    """System -> measures and costs: index with the spec's beam, a baseline at its first beam with as many visits."""
    values: dict[str, dict[str, Values]] = field(default_factory=dict)
    """System -> measure -> value of each query [q], of the searches in `rows`."""
    runs: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    balance: dict[str, float] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    first_Q: Ints | None = None
    """The leaf that each query visits first."""
    history: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """Phase of training -> metrics that the phase recorded, epoch by epoch."""
    seconds: dict[str, float] = field(default_factory=dict)
    chosen: ChosenBeam | None = None
    weight: FusionWeight | None = None
    beside: RerankWeight | None = None
    """Weight of the search's score in re-ranking that dev queries chose."""
    precision: QueryPrecision | None = None
    """The number format of queries that dev queries chose."""
    adoption: Adoption | None = None
    """The decision to keep the trained encoder or not. None if nothing trained, or encoders are always kept."""
    best: dict[str, dict[str, float]] = field(default_factory=dict)
    """Phase of training -> metrics of the epoch whose weights were kept."""
    others: dict[str, dict[str, float]] = field(default_factory=dict)
    """System -> measures over the queries that are in no earlier split (train, dev). Empty if no query is left out."""

    def settled(self, spec: JobSpec) -> JobSpec:
        return spec.settled(None if self.weight is None else self.weight.weight)


@dataclass(frozen=True)
class Evaluation:
    documents: int
    """Number of documents that were searched: all, or those that match the filter."""
    queries: int
    lists: dict[str, int]
    """Name of a baseline that cuts the corpus into lists (groups of documents, like leaves) -> its number of lists."""
    seeds: list[SeedResult]
    new_Q: Bools
    """True [q] for a query if none of its answers is the answer of a train query."""
    family_Q: Ints
    """Number [q] of each query's family: queries that share an answer or half of their words."""
    asked_before: dict[str, int]
    """Number of `queries`, and how many train or dev also has, `by_id` or `by_text`. Empty if no query is shared."""
    level: int | None = None
    """Level of ReTreever's tree by which the index is searched. None if a query visits leaves."""
    cut: dict[str, Any] | None = None
    """How dev was cut out of train, as the record of the corpus says. None if dev has its own judgements."""
    corpus: int | None = None
    """Number of documents of the corpus if a filter chose some of them. None without a filter."""
    left_out: int | None = None
    """Number of judged queries that are not measured because no answer matches the filter. None without a filter."""
    whole: int | None = None
    """Number of documents if `documents` counts passages. None with a filter."""


def evaluate(
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    models: Mapping[int, tuple[Artifact, Artifact]],
    read: Mapping[tuple[str, int | None], Artifact] | None = None,
    test: Artifact | None = None,
) -> Generator[Named, None, Evaluation]:
    """Measure the index of every seed (seed -> model, index) and the spec's baselines. Yields a row for each system.

    `read` are further artifacts that searches read, by kind and seed (None: all seeds). `test` has the test split. If
    `test` is None, `corpus` has it. InputError if the split has no judgements, or the filter leaves no query.
    """
    split = spec.evaluate.split
    queries = load_split(split, corpus, vectors, test)
    if not queries:
        raise InputError(f"evaluate.split: got {split!r}, which has no judgements; allowed: a split with judgements")
    base = BaselineDocuments.of_vectors(corpus, vectors, spec.measured)
    documents, matching = base.counts()
    dev, all_judged = load_dev(corpus, vectors, base.holdout, base.exact), len(queries)
    choosing = choosing_queries(corpus, vectors)
    if spec.measured is not None:
        queries, dev, *choosing = (about_matching(chosen, base) for chosen in (queries, dev, *choosing))
        if not queries:
            raise InputError(
                f"evaluate.filter: no answer of {all_judged:,} {split} queries matches; allowed: another filter"
            )
    earlier = load_texts(corpus, ["train"] if split == "dev" else ["train", "dev"])
    asked_Q2 = asked_before(dict(zip(queries.ids, queries.texts, strict=True)), earlier)
    if np.logical_or(*asked_Q2).all():
        raise InputError(f"evaluate.filter: all {len(queries):,} {split} queries that match also train or choose")
    work = _Work(spec, corpus, base, (documents, matching), queries, dev, choosing)
    for seed, (model, index) in models.items():
        further = {kind: made for (kind, of), made in (read or {}).items() if of in (None, seed)}
        with reading(index.root, BUILT):
            yield from work.add(seed, model, index, further)
    answers = [relevant(queries.grades[query]) for query in queries.ids]
    is_filtered = spec.measured is not None
    return Evaluation(
        matching,
        len(queries),
        work.lists,
        work.results,
        new_answers(queries, load_answers(corpus, "train")),
        families([words(text, language(corpus)) for text in queries.texts], answers),
        work.others(*asked_Q2),
        work.level,
        corpus.record.counts.get("cut"),
        documents if is_filtered else None,
        all_judged - len(queries) if is_filtered else None,
        None if is_filtered else corpus.record.counts["documents"]["accepted"],
    )


def about_matching(queries: Queries, base: BaselineDocuments) -> Queries:
    """Select the queries with an answer among the searched documents, and only judgements of these documents."""
    names = sorted({name for grades in queries.grades.values() for name in grades})
    return queries.about(base.judged(names))


def baselines(spec: JobSpec) -> tuple[str, ...]:
    """Return the spec's baselines, and further baselines that the spec implies: two lists per document, and BM25."""
    two = ("faiss_ivf_spill",) if spec.leaves_per_document > 1 else ()
    untrained = (UNTRAINED,) if "exact" in spec.evaluate.baselines else ()
    words = ("bm25", *untrained) if spec.measures_words else ()
    return tuple(dict.fromkeys((*spec.evaluate.baselines, *two, *words)))


class _Work:
    """An evaluation in progress. Systems that do not depend on the seed are measured only once."""

    def __init__(
        self,
        spec: JobSpec,
        corpus: Artifact,
        base: BaselineDocuments,
        counts: tuple[int, int],
        queries: Queries,
        dev: Queries,
        choosing: Sequence[Queries],
    ) -> None:
        self.spec, self.corpus, self.base, self.choosing = spec, corpus, base, choosing
        self.documents, self.matching = counts
        self.queries, self.dev = queries, dev
        self.judge = Judge(queries, spec.evaluate.measures)
        self.k = max(spec.search.k, *(int(measure.partition("@")[2]) for measure in spec.evaluate.measures))
        self.lists: dict[str, int] = {}
        self.level: int | None = None
        self._tuned: dict[str, int] = {}
        self.results: list[SeedResult] = []

    def add(
        self, seed: int, artifact: Artifact, index: Artifact, read: Mapping[str, Artifact]
    ) -> Iterator[dict[str, str]]:
        """Measure one seed. The index comes first, because its visits decide which points of baselines are reported."""
        spec, calibration, router = self.spec, read.get("calibration"), str(self.spec.router.type)
        model = Model.open(artifact, spec, calibration=calibration)
        sizes = np.array(LeafMap.open(index.root, BUILT).manifest.counts)
        result = SeedResult(
            seed,
            balance=balance(sizes),
            sizes=sizes.tolist(),
            history=files.read_json(artifact.path("metrics.json")),
            chosen=model.chosen,
            adoption=Adoption.open(artifact),
            best=artifact.record.counts.get("best", {}),
        )
        reranks = spec.search.reranking is not None
        if calibration is not None and (spec.measures_words or reranks):
            result.weight, result.beside = FusionWeight.open(calibration), RerankWeight.open(calibration)
        result.precision = QueryPrecision.open(calibration) if calibration is not None else None
        encoded = self._encoded(model, self.queries)
        result.first_Q = model.route(encoded, 1)[:, 0]
        asked = model.encode_queries(self.queries.texts) if model.encodes_queries_apart else encoded
        searches = self._searches(result, artifact, index, read, asked)
        size = self.matching, encoded.source.shape[1]
        if (similarity := model.flat_similarity) is not None:
            self.level = level = similarity.level
            listed = spec.search.shortlisted(self.k)
            self._curve(result, router, lambda: level_system(router, searches, model, *size, level, listed))
        else:
            system = index_system(router, searches, model, *size)
            point = system if spec.measured is None else as_searched(system, searches)
            self._curve(result, router, lambda: system, point)
        yield {"system": router}
        trained = BaselineDocuments.of_index(index, spec.measured)
        for name in baselines(spec):
            match name:
                case "exact":
                    self._once(result, name, lambda: self.base.exact(self.queries.vector_QM, self.k))
                case "bm25":
                    self._once(result, name, lambda: self._bm25.rank(list(self.queries.texts), self.k))
                case "exact+bm25":
                    self._once(result, name, self._untrained)
                case "exact_same_encoder":
                    self._whole(result, name, lambda: trained.exact(encoded.numpy, self.k))
                case _:
                    self._built(result, name, encoded, trained, model)
            yield {"system": name}
        self.results.append(result)
        if spec.measures_words:
            self._served(result, f"{router}+bm25", searches, "hybrid", 0)
            yield {"system": f"{router}+bm25"}
        if reranks:
            self._served(result, f"{router}+{spec.search.rerank.type}", searches, None, None)
            yield {"system": f"{router}+{spec.search.rerank.type}"}

    def _encoded(self, model: Model, queries: Queries) -> Encoded:
        return model.encode_stored(queries.vector_QM, lambda: queries.texts, "query")

    def _searches(
        self, result: SeedResult, model: Artifact, index: Artifact, read: Mapping[str, Artifact], encoded: Encoded
    ) -> IndexSearch:
        return IndexSearch.open(result.settled(self.spec), model, index, read, self.queries.texts, encoded, self.k)

    def _served(
        self, result: SeedResult, name: str, searches: IndexSearch, mode: str | None, budget: int | None
    ) -> None:
        began = time.perf_counter()
        ranking, taken = searches.served(mode, budget)
        costs = {
            "visited": float(ranking.visited_Q.mean()) / self.matching,
            "leaves": float(ranking.leaves_Q.mean()),
            "calls": 0.0 if ranking.calls_Q is None else float(ranking.calls_Q.mean()),
            "ms": 1e3 * taken / len(self.queries),
        }
        self._note(result, name, ranking, costs, began)

    def _note(self, result: SeedResult, name: str, ranking: Ranking, costs: Mapping[str, float], began: float) -> None:
        result.values[name] = self.judge.values(ranking)
        result.rows[name] = {**means(result.values[name]), **costs}
        result.runs[name], result.seconds[name] = self.judge.run(ranking), time.perf_counter() - began

    def others(self, id_Q: Bools, text_Q: Bools) -> dict[str, int]:
        """Count the queries that an earlier split also has. Measure every system without these queries, if any."""
        others_Q = ~(id_Q | text_Q)
        if others_Q.all():
            return {}
        for result in self.results:
            for name, run in result.runs.items():
                values = self.judge.values_of(run)
                result.others[name] = means({measure: value_Q[others_Q] for measure, value_Q in values.items()})
        return {"queries": len(others_Q), "by_id": int(id_Q.sum()), "by_text": int(text_Q.sum())}

    def _built(self, result: SeedResult, name: str, encoded: Encoded, trained: BaselineDocuments, model: Model) -> None:
        documents, query_QM = (self.base, self.queries.vector_QM) if name == "faiss_ivf" else (trained, encoded.numpy)
        make: Callable[..., object]
        given: tuple[int, ...]
        match name:
            case "hnsw":
                make, given, widths, routing = Hnsw, (), efforts(self.documents), 0.0
            case "scann":  # ScaNN gets as many partitions as the k-means baseline has lists
                lists = self._list_count("faiss_ivf_same_encoder", trained, model, result.seed)
                make, given, widths, routing = ScannTree, (lists,), beams(lists, self.documents), float(lists)
            case _:
                lists = self._list_count(name, documents, model, result.seed)
                given = (lists, result.seed, LEAVES.get(name, 1))
                make, widths, routing = KmeansIvf, beams(lists, self.documents), float(lists)
        if name != "hnsw":
            self.lists[name] = lists

        def system() -> System:
            documents.build(make, *given)
            timed_QM = query_QM[timed_rows(len(query_QM))]
            made = System(
                name,
                self.matching,
                widths,
                lambda width: documents.rank(query_QM, width, self.k),
                lambda _: routing,
                lambda width: documents.seconds(timed_QM, width, self.k),
            )
            # ScaNN returns all that it finds, which no user wants. faiss is timed only if all vectors are in memory.
            untimed = name == "scann" or documents.vector_NM.dtype != np.float32
            return replace(made, seconds=None) if untimed else made

        self._curve(result, name, system)
        documents.release()

    def _list_count(self, name: str, documents: BaselineDocuments, model: Model, seed: int) -> int:
        setting = self.spec.evaluate.lists
        if setting != "auto":
            return min(setting, self.documents)
        if name not in self._tuned:
            if not self.dev:
                raise InputError("evaluate.lists: got 'auto', but no dev answer matches the filter; allowed: a number")
            dev = self.dev if name == "faiss_ivf" else self.dev.with_vectors(self._encoded(model, self.dev).numpy)
            self._tuned[name] = lists = tuned_lists(documents, dev, seed, LEAVES.get(name, 1))
            if len(dev.ids) < FEW_DEV:
                say(f"  {name}: {lists} lists were chosen by only {len(dev.ids)} queries: try --set evaluate.lists=N")
        return self._tuned[name]

    @cached_property
    def _bm25(self) -> Bm25:
        return Bm25.of_corpus(self.corpus, self.spec.measured)

    def _untrained(self) -> Ranking:
        search = self.base.with_words(self._bm25.words, cosines=self.spec.encoder.similarity == "cosine")
        fusion = self.spec.search.hybrid
        if fusion.fuse == "sum" and fusion.weight == "auto":
            fusion = HybridSpec(weight=chosen_weight(search, self.choosing))
            log(f"  {UNTRAINED}: BM25's weight {fusion.weight}, chosen by {sum(map(len, self.choosing)):,} queries")
        return search.rank(self.queries.texts, self.queries.vector_QM, self.k, fusion)

    def _once(self, result: SeedResult, name: str, rank: Callable[[], Ranking]) -> None:
        """Measure a system that does not depend on the seed, once. Later seeds copy the results of the first seed."""
        if not self.results:
            self._whole(result, name, rank)
            return
        first = self.results[0]
        result.values[name], result.rows[name] = first.values[name], first.rows[name]
        result.runs[name], result.seconds[name] = first.runs[name], 0.0

    def _whole(self, result: SeedResult, name: str, rank: Callable[[], Ranking]) -> None:
        began = time.perf_counter()
        self._note(result, name, rank(), {"visited": 1.0}, began)

    def _curve(self, result: SeedResult, name: str, make: Callable[[], System], searched: System | None = None) -> None:
        """Measure a system's curve and its row in the report. The index's row is of `searched`, as users search it."""
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
            as_much = result.rows[router]["visited"]
            beam = next((point.beam for point in curve if point.visited_mean >= as_much), curve[-1].beam)
        point, ranking = measure_at(searched or system, self.judge, beam)
        result.curves[name] = curve
        costs = {"visited": point.visited_mean, "beam": float(point.beam), "leaves": point.leaves_mean}
        self._note(result, name, ranking, costs, began)
