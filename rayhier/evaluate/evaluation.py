"""The evaluate stage: every seed's index and its controls, on the same queries."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from rayhier.embed.trained import TrainedEncoder
from rayhier.evaluate.balance import balance
from rayhier.evaluate.baselines import exact, faiss_ivf, tuned_lists
from rayhier.evaluate.curve import Point, System, measure_at, measure_curve
from rayhier.evaluate.data import Documents, load_dev, load_documents, load_queries
from rayhier.evaluate.measures import Judge, Queries
from rayhier.model.router import Router, load_router, route_all
from rayhier.progress import Bar
from rayhier.search.lists import Ints
from rayhier.search.loaded import LoadedMap
from rayhier.spec import InputError, JobSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.columns import Floats
from rayhier.storage.leaf_map import LeafMap


@dataclass
class SeedResult:
    """What one seed's index and its controls measured."""

    seed: int
    curves: dict[str, list[Point]] = field(default_factory=dict)
    exact: dict[str, dict[str, float]] = field(default_factory=dict)
    """Systems without a curve: measures of a scan of everything."""
    points: dict[str, Point] = field(default_factory=dict)
    """Systems with a curve: the router at `search.beam`, controls where they first visit as much."""
    runs: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    balance: dict[str, float] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)
    """Of the training."""
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """All seeds."""

    documents: int
    queries: int
    lists: dict[str, int]
    """Lists of each IVF control."""
    seeds: list[SeedResult]


@dataclass(frozen=True)
class Trained:
    """One seed's published model and index, in memory."""

    encoder: TrainedEncoder
    router: Router
    loaded: LoadedMap
    vector_NM: Floats
    """Document vectors as the leaf map holds them, every document once."""
    ids: list[str]
    """Row for row."""
    history: list[dict[str, float]]

    def encode(self, queries: Queries) -> Queries:
        """The same queries under the trained encoder."""
        return queries.with_vectors(self.encoder(queries.vector_QM, lambda: queries.texts))


def load_trained(spec: EncoderSpec, model: Artifact, index: Artifact) -> Trained:
    """Open what a train and an index step published."""
    loaded = LoadedMap.read(LeafMap.open(index.root), texts=False)
    return Trained(
        TrainedEncoder.open(model, spec),
        load_router(model.path("router")),
        loaded,
        loaded.vector_NM[loaded.first],
        loaded.result_ids.take(loaded.first).to_pylist(),
        files.read_json(model.path("metrics.json")),
    )


def evaluate(
    spec: JobSpec, corpus: Artifact, vectors: Artifact, trained: Mapping[int, tuple[Artifact, Artifact]]
) -> Evaluation:
    """Measure the index of every seed (seed -> model, index) and the spec's baselines beside it."""
    documents = load_documents(vectors)
    queries = load_queries(corpus, vectors, spec.evaluate.split)
    if not queries:
        raise InputError(f"evaluate.split: got {spec.evaluate.split!r}, which has no judgements in this corpus")
    work = _Work(spec, documents, queries, load_dev(corpus, vectors, documents))
    with Bar("evaluate", len(trained), "seeds") as bar:
        for seed, (model, index) in trained.items():
            work.add(seed, load_trained(spec.encoder, model, index))
            bar.advance(note=f"seed {seed}")
    return Evaluation(len(documents.ids), len(queries), work.lists, work.results)


class _Work:
    """The evaluation as it goes: what seeds share is measured once."""

    def __init__(self, spec: JobSpec, documents: Documents, queries: Queries, dev: Queries) -> None:
        self.spec, self.documents, self.queries, self.dev = spec, documents, queries, dev
        self.k = max(spec.search.k, *(int(measure.partition("@")[2]) for measure in spec.evaluate.measures))
        self.lists: dict[str, int] = {}
        self.results: list[SeedResult] = []

    def add(self, seed: int, trained: Trained) -> None:
        """Measure one seed's router first: where it stands decides where the controls are tabled."""
        result = SeedResult(seed, history=trained.history)
        self.results.append(result)
        queries = trained.encode(self.queries)
        ids = trained.ids
        sizes = trained.loaded.lists.sizes
        result.balance, result.sizes = balance(sizes), sizes.tolist()
        routed = _routed(self.spec, trained, queries.vector_QM)
        self._curve(result, routed, queries, trained.loaded.result_ids.to_pylist())
        for name in self.spec.evaluate.baselines:
            same = name.endswith("_same_encoder")
            asked, vectors, names = (
                (queries, trained.vector_NM, ids)
                if same
                else (self.queries, self.documents.vector_NM, self.documents.ids)
            )
            if name.startswith("exact"):
                self._exact(result, name, asked, vectors, names)
            else:
                dev = trained.encode(self.dev) if same else self.dev
                lists = self._lists(name, dev, vectors, names, seed)
                self._curve(result, faiss_ivf(name, asked.vector_QM, vectors, lists, seed), asked, names)

    def _lists(self, name: str, dev: Queries, vectors: Floats, ids: Sequence[str], seed: int) -> int:
        """Lists of a control: as the spec says, or tuned on dev with the first seed."""
        if name not in self.lists:
            asked = self.spec.evaluate.lists
            self.lists[name] = tuned_lists(dev, vectors, ids, seed) if asked == "auto" else min(asked, len(vectors))
        return self.lists[name]

    def _exact(self, result: SeedResult, name: str, queries: Queries, vectors: Floats, ids: Sequence[str]) -> None:
        began = time.perf_counter()
        judge = Judge(queries, ids, self.spec.evaluate.measures)
        ranking = exact(queries.vector_QM, vectors, self.k)
        result.exact[name], result.runs[name] = judge.mean(ranking), judge.run(ranking)
        result.seconds[name] = time.perf_counter() - began

    def _curve(self, result: SeedResult, system: System, queries: Queries, ids: Sequence[str]) -> None:
        began = time.perf_counter()
        judge = Judge(queries, ids, self.spec.evaluate.measures)
        curve = measure_curve(system, queries, judge, self.k)
        router = self.spec.router.type
        if system.name == router:
            beam = min(self.spec.search.beam, len(system.lists.sizes))
        else:
            as_much = result.points[router].visited_mean
            beam = next((point.beam for point in curve if point.visited_mean >= as_much), curve[-1].beam)
        point, ranking = measure_at(system, queries, judge, self.k, beam)
        result.curves[system.name], result.points[system.name] = curve, point
        result.runs[system.name] = judge.run(ranking)
        result.seconds[system.name] = time.perf_counter() - began


def _routed(spec: JobSpec, trained: Trained, query_QM: Floats) -> System:
    router, dimension = trained.router, trained.vector_NM.shape[1]

    def probe(beam: int) -> Ints:
        return np.asarray(route_all(router, torch.from_numpy(query_QM), beam)[0].numpy())

    return System(spec.router.type, trained.loaded.lists, probe, lambda beam: router.multiply_adds(beam) / dimension)
