"""The evaluate stage: every seed's index and its controls, on the same queries."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rayhier.embed.trained import TrainedEncoder
from rayhier.evaluate.balance import balance
from rayhier.evaluate.baselines import Collection, faiss_ivf, shares, tuned_lists
from rayhier.evaluate.bm25 import Bm25
from rayhier.evaluate.curve import Point, System, beams, measure_at, measure_curve
from rayhier.evaluate.data import load_dev, load_queries
from rayhier.evaluate.found import Ranking
from rayhier.evaluate.hnsw import Hnsw, efforts
from rayhier.evaluate.measures import Judge, Queries, Values, means
from rayhier.evaluate.part import ROUTER, Part
from rayhier.evaluate.parts import Here, Make, Workshop
from rayhier.evaluate.scann_tree import ScannTree
from rayhier.model.router import Router, load_router, route_all
from rayhier.progress import Bar
from rayhier.search.lists import Ints
from rayhier.search.opened import spared
from rayhier.spec import InputError, JobSpec
from rayhier.spec.search import SearchSpec
from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap
from rayhier.storage.pins import reading

LEAVES = {"faiss_ivf_spill": 2}
"""Lists of a document, where they are not one."""


@dataclass
class SeedResult:
    """What one seed's index and its controls measured."""

    seed: int
    curves: dict[str, list[Point]] = field(default_factory=dict)
    exact: dict[str, dict[str, float]] = field(default_factory=dict)
    """Systems without a curve: measures of a scan of everything."""
    values: dict[str, dict[str, Values]] = field(default_factory=dict)
    """The same of every query."""
    points: dict[str, Point] = field(default_factory=dict)
    """Systems with a curve: the router at `search.beam`, controls where they first visit as much."""
    runs: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    balance: dict[str, float] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    history: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """Of each phase of the training."""
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """All seeds."""

    documents: int
    queries: int
    lists: dict[str, int]
    """Lists of each control that has some."""
    seeds: list[SeedResult]


@dataclass(frozen=True)
class Trained:
    """One seed's published model, and its index in parts."""

    encoder: TrainedEncoder
    router: Router
    index: Artifact
    collection: Collection
    """Documents as the leaf map holds them, every one once."""
    history: dict[str, list[dict[str, float]]]
    """Of each phase of the training."""

    def encode(self, queries: Queries) -> Queries:
        """The same queries under the trained encoder."""
        return queries.with_vectors(self.encoder(queries.vector_QM, lambda: queries.texts))

    def system(self, name: str, queries: Queries, k: int, search: SearchSpec | None = None) -> System:
        """The router over its leaf map; as a search takes it, where there is one."""
        router = self.router if search is None else spared(self.router, search)
        dimension = queries.vector_QM.shape[1]

        def probe(beam: int) -> Ints:
            return np.asarray(route_all(router, torch.from_numpy(queries.vector_QM), beam)[0].numpy())

        return self.collection.system(
            name, ROUTER, queries.vector_QM, k, probe, lambda beam: router.multiply_adds(beam) / dimension
        )


def load_trained(spec: JobSpec, model: Artifact, index: Artifact, workshop: Workshop) -> Trained:
    """Open what a train and an index step published; shards are read by whoever holds them."""
    shards = LeafMap.open(index.root, BUILT).manifest.shards
    own = [(str(index.folder), numbers) for numbers in shares(shards, workshop.workers)]
    return Trained(
        TrainedEncoder.open(model, spec.encoder),
        load_router(model.local("router")),
        index,
        Collection.of(workshop.start(Part.of_shards, own)),
        files.read_json(model.path("metrics.json")),
    )


def load_base(corpus: Artifact, vectors: Artifact, workshop: Workshop) -> Collection:
    """The corpus under its base encoder."""
    names = vectors.names("documents/")
    folders = str(corpus.folder), str(vectors.folder)
    own = [(*folders, [names[number] for number in numbers]) for numbers in shares(names, workshop.workers)]
    return Collection.of(workshop.start(Part.of_vectors, own))


def evaluate(
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    trained: Mapping[int, tuple[Artifact, Artifact]],
    workshop: Workshop | None = None,
) -> Evaluation:
    """Measure the index of every seed (seed -> model, index) and the spec's baselines beside it."""
    workshop = workshop or Here()
    queries = load_queries(corpus, vectors, spec.evaluate.split)
    if not queries:
        raise InputError(f"evaluate.split: got {spec.evaluate.split!r}, which has no judgements in this corpus")
    base = load_base(corpus, vectors, workshop)
    work = _Work(spec, corpus, base, queries, load_dev(corpus, vectors, base), workshop)
    with Bar("evaluate", len(trained), "seeds") as bar:
        for seed, (model, index) in trained.items():
            with reading(index.root, BUILT):
                work.add(seed, load_trained(spec, model, index, workshop))
            bar.advance(note=f"seed {seed}")
    return Evaluation(base.documents, len(queries), work.lists, work.results)


def baselines(spec: JobSpec) -> tuple[str, ...]:
    """Those the spec names, and the control with two leaves where the index has two."""
    two = ("faiss_ivf_spill",) if spec.leaves_per_document > 1 else ()
    return tuple(dict.fromkeys((*spec.evaluate.baselines, *two)))


class _Work:
    """The evaluation as it goes: what seeds share is measured once."""

    def __init__(
        self,
        spec: JobSpec,
        corpus: Artifact,
        base: Collection,
        queries: Queries,
        dev: Queries,
        workshop: Workshop,
    ) -> None:
        self.spec, self.corpus, self.base, self.workshop = spec, corpus, base, workshop
        self.queries, self.dev = queries, dev
        self.judge = Judge(queries, spec.evaluate.measures)
        self.k = max(spec.search.k, *(int(measure.partition("@")[2]) for measure in spec.evaluate.measures))
        self.lists: dict[str, int] = {}
        self._tuned: dict[str, int] = {}
        self.results: list[SeedResult] = []

    def add(self, seed: int, trained: Trained) -> None:
        """Measure one seed's router first: where it stands decides where the controls are tabled."""
        result = SeedResult(seed, history=trained.history)
        queries = trained.encode(self.queries)
        sizes = trained.collection.sizes(ROUTER)
        result.balance, result.sizes = balance(sizes), sizes.tolist()
        router = self.spec.router.type
        asked = trained.system(router, queries, self.k, self.spec.search)
        self._curve(result, router, lambda: trained.system(router, queries, self.k), asked)
        for name in baselines(self.spec):
            match name:
                case "exact":
                    self._once(result, name, lambda: self.base.exact(self.queries.vector_QM, self.k).ranking)
                case "bm25":
                    self._once(result, name, self._bm25)
                case "exact_same_encoder":
                    self._whole(result, name, lambda: trained.collection.exact(queries.vector_QM, self.k).ranking)
                case "hnsw":
                    self._hnsw(result, queries, trained)
                case "scann":
                    self._scann(result, queries, trained)
                case _:
                    self._ivf(result, name, queries, trained)
        trained.collection.parts.close()
        self.results.append(result)

    def _ivf(self, result: SeedResult, name: str, queries: Queries, trained: Trained) -> None:
        base, leaves = name == "faiss_ivf", LEAVES.get(name, 1)
        collection, asked = (self.base, self.queries.vector_QM) if base else (trained.collection, queries.vector_QM)
        self.lists[name] = lists = self._list_count(name, trained, result.seed)
        self._curve(result, name, lambda: faiss_ivf(name, collection, asked, self.k, lists, result.seed, leaves))

    def _list_count(self, name: str, trained: Trained, seed: int) -> int:
        """Lists of a k-means control: as many as the spec says, or tuned on dev with the first seed."""
        base, given = name == "faiss_ivf", self.spec.evaluate.lists
        collection = self.base if base else trained.collection
        if given != "auto":
            return min(given, collection.documents)
        if name not in self._tuned:
            dev = self.dev if base else trained.encode(self.dev)
            self._tuned[name] = tuned_lists(name, collection, dev, seed, LEAVES.get(name, 1))
        return self._tuned[name]

    def _hnsw(self, result: SeedResult, queries: Queries, trained: Trained) -> None:
        widths = efforts(trained.collection.documents)
        self._library(result, "hnsw", queries, trained, widths, 0.0, Hnsw.of_index)

    def _scann(self, result: SeedResult, queries: Queries, trained: Trained) -> None:
        """As many partitions as the k-means control has lists."""
        self.lists["scann"] = lists = self._list_count("faiss_ivf_same_encoder", trained, result.seed)
        self._library(result, "scann", queries, trained, beams(lists), float(lists), ScannTree.of_index, lists)

    def _library(
        self,
        result: SeedResult,
        name: str,
        queries: Queries,
        trained: Trained,
        widths: Sequence[int],
        routing: float,
        make: Make,
        *arguments: Any,
    ) -> None:
        """A library that takes the whole index, built in a process of its own."""
        documents = trained.collection.documents
        alone = self.workshop.alone(make, str(trained.index.folder), *arguments)

        def system() -> System:
            asked = alone.send(queries.vector_QM)
            return System(
                name,
                documents,
                widths,
                lambda width: alone.call("search", asked, width, self.k)[0],
                lambda _: routing,
            )

        self._curve(result, name, system)
        alone.close()

    def _bm25(self) -> Ranking:
        alone = self.workshop.alone(Bm25.of_corpus, str(self.corpus.folder))
        ranking: Ranking = alone.call("search", list(self.queries.texts), self.k)[0]
        alone.close()
        return ranking

    def _once(self, result: SeedResult, name: str, rank: Callable[[], Ranking]) -> None:
        """A system that no seed changes: measured with the first, taken over by the others."""
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

    def _curve(self, result: SeedResult, name: str, make: Callable[[], System], asked: System | None = None) -> None:
        """A system's curve, and where it stands: there `asked`, the router as the spec has it searched."""
        began = time.perf_counter()
        system = make()
        curve = list(measure_curve(system, self.judge))
        router = self.spec.router.type
        if name == router:
            beam = self.spec.search.leaves_visited(len(result.sizes), sum(result.sizes))
        else:
            as_much = result.points[router].visited_mean
            beam = next((point.beam for point in curve if point.visited_mean >= as_much), curve[-1].beam)
        point, ranking = measure_at(asked or system, self.judge, beam)
        result.curves[name], result.points[name] = curve, point
        result.runs[name] = self.judge.run(ranking)
        result.seconds[name] = time.perf_counter() - began
