"""Training of one row and what it finds at every size, query by query; kept, so that the benchmark goes on."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from safetensors import safe_open
from torch import nn

from benchmarks import cache
from benchmarks.collection import Collection
from benchmarks.quality.view import View
from benchmarks.retreever.controls import FixedTree, KmeansTree, MixtureTree, NoTree
from benchmarks.statistics import Estimate, paired
from benchmarks.training import train
from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.model.retreever import DEEPEST, Representations, RetreeverRouter
from rayhier.search.exact import flat
from rayhier.spec.router import RetreeverRouting
from rayhier.spec.train import RetreeverTraining
from rayhier.spec.train.retreever import Comparison
from rayhier.train.examples import Examples
from rayhier.train.loop import Phase, best_row
from rayhier.train.retreever.adapter import Adapter
from rayhier.train.retreever.dev import SizesMeasure
from rayhier.train.retreever.grow import ADAPTER_RATE, grow, with_documents
from rayhier.train.retreever.matching import Matching, from_tower, size_all
from rayhier.train.retreever.start import principal, sizes
from rayhier.train.tower import HeadTower, Side

MEASURES = ("R@10", "nDCG@10", "R@100")
DEPTH = 100
AT_ONCE = 16_384
MEASURED_EVERY = 3
"""Epochs between two dev measures: automatic epochs are five to thirteen here, and a measure takes as long as one."""
Sizes = dict[int, dict[str, Values]]
"""Size -> measure -> values [q]."""
COARSE = (4, 8, 16, 32)
"""Sizes at which the paper compares trees and Matryoshka adapters."""
SHARED = ("documents", "epochs", "batch_size", "measure_every")
"""Settings of a tree's training that the adapter it starts at is trained with too."""


@dataclass(frozen=True)
class Row:
    """One configuration: a tree, an adapter, outputs without a tree, a tree that nothing trains, or plain vectors."""

    name: str
    kind: Literal["tree", "linear", "matryoshka", "no tree", "k-means", "mixtures", "vectors"] = "tree"
    train: dict[str, Any] = field(default_factory=dict)
    router: dict[str, Any] = field(default_factory=dict)
    begin: Literal["identity", "pca"] = "identity"
    """Where an adapter starts."""
    rate: float = 1e-3
    """Learning rate of an adapter, or of outputs without a tree."""
    base: bool = False
    """Whether the encoder is the one that nothing trained."""
    anchored: bool = False
    """Whether an adapter's largest size is held to the encoder's cosines, as a tree's is."""


class Setting:
    """A collection under one encoder, as trees and adapters read it; what is trained is kept below a folder."""

    def __init__(self, collection: Collection, view: View, seed: int, folder: Path) -> None:
        self.collection, self.view, self.seed, self.folder = collection, view, seed, folder
        own = collection.examples
        self.examples: Examples = replace(own, query_QM=view.encode(own.query_QM), document_NM=view.vectors)
        self.dev = collection.dev.with_vectors(view.encode(collection.dev.vector_QM))
        query_QM, document_NM = self.examples.query_QM, self.examples.document_NM
        stored: dict[Side, Floats] = {"query": query_QM, "document": document_NM, "dev": self.dev.vector_QM}
        self.tower = HeadTower(nn.Identity(), stored, torch.device("cpu"))  # type: ignore[arg-type]
        self.measure = SizesMeasure(self.dev, collection.documents, own.answers(collection.documents.results))

    def settings(self, row: Row) -> list[Any]:
        """All that tells what a row is from what others are."""
        spec = training(row)
        passes = spec.passes(round(len(self.examples.pair_P2) * (1 + spec.documents)))
        match row.kind:
            case "tree" | "no tree":
                started = ["at directions"] if row.kind == "no tree" else []
                dropping = ["measured without"] if row.router.keys() & {"dropout", "propagation", "splits"} else []
                own = resolved(spec, str(row.router.get("splits", "linear")))
                return [row.kind, row.router, row.rate, own, passes, *started, *dropping]
            case "linear" | "matryoshka":
                held = [spec.held("linear")] if row.anchored else []
                return [row.kind, row.begin, row.rate, spec.batch_size, spec.documents, passes, *held]
        return [row.kind, row.router, spec.similarity]

    def path(self, *parts: Any) -> Path:
        """Place of what is kept under some settings."""
        return self.folder / f"{cache.key(*parts, self.seed)}.safetensors"

    def kept(self, make: Callable[[], Mapping[str, Values]], *parts: Any) -> dict[str, Values]:
        """Arrays under some settings, made now or read from an earlier run."""
        return cache.kept(self.path(*parts).with_suffix(".npz"), make)

    def kept_sizes(self, make: Callable[[], "Sizes"], *parts: Any) -> "Sizes":
        """Each measure of every query at each size; made now or read from an earlier run."""

        def named() -> dict[str, Values]:
            return {f"{measure} {size}": value_Q for size, own in make().items() for measure, value_Q in own.items()}

        sizes: Sizes = {}
        for name, value_Q in self.kept(named, *parts).items():
            measure, _, size = name.rpartition(" ")
            sizes.setdefault(int(size), {})[measure] = value_Q
        return dict(sorted(sizes.items()))

    def kept_epoch(self, row: Row) -> int | None:
        """The epoch whose weights dev picked, 0 for the start; None where nothing was trained, or no file is left."""
        path = self.path(self.settings(row))
        if row.kind in ("vectors", "k-means", "mixtures") or not path.is_file():
            return None
        with safe_open(path, framework="pt") as file:
            return int(best_row(json.loads(file.metadata()["position"])["history"])["epoch"])

    def trained(self, row: Row) -> Representations:
        """The trained representations of a row."""
        return self.router(row).representations if row.kind == "tree" else self._adapter(row)

    def router(self, row: Row) -> RetreeverRouter:
        """The trained tree of a row."""
        spec, router = training(row), RetreeverRouting.model_validate({"type": "retreever", **row.router})
        rows = {"adapter": beginning(row), "tree": row}

        def run(name: str, phase: Phase) -> None:
            train(phase, self.path(self.settings(rows[name])))

        return grow(self.tower, self.examples, router, spec, self.seed, self.measure, run).eval()

    def _adapter(self, row: Row) -> Representations:
        spec, (_n, dimension) = training(row), self.examples.document_NM.shape
        made: Representations
        if row.kind == "no tree":
            made = NoTree(dimension, 2 ** int(row.router.get("depth", 10)), spec.similarity)
            adapter = self._adapter(beginning(row))
            assert isinstance(adapter, Adapter)
            made.start(self.examples.document_NM, adapter.weight.detach(), self.seed, DEEPEST)
        else:
            begin = torch.eye(dimension) if row.begin == "identity" else principal(self.examples.document_NM, self.seed)
            made = Adapter(begin, sizes(dimension) if row.kind == "matryoshka" else [dimension])
        every: Literal["matryoshka", "constant"] = "matryoshka" if row.kind == "matryoshka" else "constant"
        examples, asking_too = with_documents(self.examples, self.examples.document_NM, spec, self.seed)
        phase = Matching(
            made,
            self.tower,
            examples,
            spec,
            self.seed,
            self.measure,
            read=asking_too(from_tower(self.tower)),
            anchor=spec.held("linear") if row.anchored or row.kind == "no tree" else 0.0,
            schedule=every,
            rate=row.rate,
        )
        train(phase, self.path(self.settings(row)))
        return made.eval()


def beginning(row: Row) -> Row:
    """The adapter at whose directions a row starts."""
    shared = {key: value for key, value in row.train.items() if key in SHARED}
    return Row("", "matryoshka", shared, begin="pca", rate=ADAPTER_RATE)


def training(row: Row) -> RetreeverTraining:
    """Settings of a row's training."""
    return RetreeverTraining.model_validate({"type": "retreever", "measure_every": MEASURED_EVERY, **row.train})


def resolved(spec: RetreeverTraining, splits: str) -> dict[str, Any]:
    """Settings of a training of splits of a kind, with the anchor that they get."""
    return spec.model_dump() | {"anchor": spec.held(splits)}


def fixed(row: Row, setting: Setting) -> FixedTree:
    """A row's tree that nothing trains."""
    made, depth = KmeansTree if row.kind == "k-means" else MixtureTree, int(row.router.get("depth", 10))
    return made(setting.examples.document_NM, depth, setting.seed)


class Bench:
    """A collection, its encoders by seed, and results that are kept in `workdir`."""

    def __init__(self, name: str, quality: Path, workdir: Path, split: str) -> None:
        self.name, self.workdir, self.split = name, workdir, split
        self.collection = Collection(name, quality / name)
        self.ids = pa.array(self.collection.documents.results, pa.string())
        self._setting: tuple[tuple[int, bool], Setting] | None = None

    @cached_property
    def queries(self) -> Queries:
        """The queries that are asked: of the test split, or of dev for work on settings."""
        return self.collection.dev if self.split == "dev" else self.collection.queries(self.split)

    @cached_property
    def judge(self) -> Judge:
        """Judges rankings of the queries that are asked."""
        return Judge(self.queries, MEASURES)

    def setting(self, seed: int, *, base: bool = False) -> Setting:
        """The collection under a seed's trained encoder, or the base one; only the last asked for stays in memory."""
        if self._setting is None or self._setting[0] != (seed, base):
            shipped = self.collection.spec.model_dump(mode="json", include={"encoder", "train"})
            folder = self.workdir / self.name / cache.key(shipped)
            view = View(self.collection, self.collection.examples, seed, folder / f"seed-{seed}", base=base)
            self._setting = (seed, base), Setting(self.collection, view, seed, folder / ("base" if base else "trained"))
        return self._setting[1]

    def values(self, row: Row, seed: int) -> Sizes:
        """Each measure of every query at each size that a row has; measured now or read from before."""
        setting = self.setting(seed, base=row.base)

        def make() -> Sizes:
            texts, similarity = (setting.examples.document_NM, self.asked(setting)), training(row).similarity
            match row.kind:
                case "vectors":
                    return self.judged_sizes("cosine", ([x] for x in texts))
                case "k-means" | "mixtures":
                    tree = fixed(row, setting)
                    levels = range(1, tree.depth + 1)
                    return self.judged_sizes(similarity, (tree.represent(x, levels, similarity) for x in texts))
            trained = setting.trained(row)
            return self.judged_sizes(trained.similarity, (self.sizes(trained, x) for x in texts))

        return setting.kept_sizes(make, "values", self.split, setting.settings(row))

    def asked(self, setting: Setting) -> Floats:
        """Vectors of the queries that are asked."""
        return setting.view.encode(self.queries.vector_QM)

    def judged(self, search: Callable[[Floats, int], tuple[Floats, Ints]], query_QK: Floats) -> dict[str, Values]:
        """Each measure of every query of a flat search."""
        return self.judge.values(whole_scan(*search(query_QK, DEPTH), self.ids, len(self.ids)))

    def judged_sizes(self, similarity: Comparison, sides: Iterable[Sequence[Floats]]) -> Sizes:
        """Each measure of every query, of documents and queries, the two sides, as they are at each size."""
        return {
            query_QK.shape[1]: self.judged(flat(document_NK, similarity), query_QK)
            for document_NK, query_QK in zip(*sides, strict=True)
        }

    @staticmethod
    @torch.no_grad()
    def sizes(trained: Representations, vector_NM: Floats) -> list[Floats]:
        """Represent texts at every size by their vectors."""
        begins = range(0, len(vector_NM), AT_ONCE)
        parts = [trained.scores(torch.from_numpy(vector_NM[begin : begin + AT_ONCE])).numpy() for begin in begins]
        return size_all(trained, np.concatenate(parts))


@dataclass(frozen=True)
class Sized:
    """What every query finds by rows' representations, of every size."""

    rows: Sequence[Row]
    found: Mapping[str, Mapping[int, Mapping[str, Values]]]
    """Name of a row -> size -> measure -> values [s, q] of seeds and queries."""
    epochs: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    """Name of a row -> the epoch that dev picked, of each seed; None where nothing was trained."""

    def shown(self, name: str) -> str:
        """Name of a row, which says so where dev picked the start with every seed."""
        started = [epoch == 0 for epoch in self.epochs.get(name, ())]
        return f"{name} (the start: dev kept epoch 0)" if started and all(started) else name

    def sizes(self, name: str) -> list[int]:
        """Sizes of a row, small first."""
        return sorted(self.found[name])

    def full(self, name: str) -> int:
        """The largest size of a row."""
        return max(self.found[name])

    def seeds(self, name: str, size: int, measure: str) -> Values:
        """Mean over queries of each seed [s]."""
        return np.asarray(self.found[name][size][measure].mean(axis=1))

    def mean(self, name: str, size: int, measure: str) -> float:
        """Mean over queries and seeds."""
        return float(self.found[name][size][measure].mean())

    def coarse(self, name: str, measure: str) -> Values:
        """Mean over the coarse sizes of each seed [s]."""
        return np.asarray(np.mean([self.seeds(name, size, measure) for size in COARSE], axis=0))

    def difference(self, name: str, control: str, measure: str) -> Estimate:
        """Points by which a row at its full size is above a control at its own, with a 95% interval over queries."""
        own_Q, control_Q = (self.found[one][self.full(one)][measure].mean(axis=0) for one in (name, control))
        return paired(own_Q, control_Q)

    def coarse_difference(self, name: str, control: str, measure: str) -> Estimate:
        """Points by which a row is above a control, mean over the coarse sizes, with a 95% interval over queries."""
        own_Q, control_Q = (
            np.mean([self.found[one][size][measure].mean(axis=0) for size in COARSE], axis=0) for one in (name, control)
        )
        return paired(own_Q, control_Q)


def sized(bench: Bench, rows: Sequence[tuple[Row, int]], report: Callable[[str], None]) -> Sized:
    """Measure rows, each with its number of seeds."""
    found: dict[str, dict[int, dict[str, Values]]] = {}
    epochs: dict[str, list[int | None]] = {}
    for row, seeds in rows:
        own = []
        epochs[row.name] = []
        for seed in range(seeds):
            own.append(bench.values(row, seed))
            epochs[row.name].append(bench.setting(seed, base=row.base).kept_epoch(row))
        found[row.name] = {
            size: {name: np.stack([one[size][name] for one in own]) for name in own[0][size]} for size in own[0]
        }
        report(f"{bench.name}: {row.name}")
    return Sized([row for row, _ in rows], found, epochs)
