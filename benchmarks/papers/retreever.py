"""Print ReTreever's tables: levels of a tree, compared with adapters and with untrained trees.

The tables are *All numbers* and *Few numbers* of results/retreever.md, of exact searches of test queries. All rows read
the vectors of an encoder that was trained by contrast, as the shipped spec trains it. Dev chooses the settings and the
epoch. Results of every query are kept, so the test split is read once per row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
import yaml
from sklearn.mixture import GaussianMixture
from torch import nn

from benchmarks import cache
from benchmarks.collection import Collection
from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads
from benchmarks.pages import sections
from benchmarks.quality.view import View
from benchmarks.statistics import compared
from benchmarks.tables import UNKNOWN, mean, table
from benchmarks.training import train
from rayhier.arrays import Floats, Ints, Values
from rayhier.cluster.kmeans import hierarchical_kmeans
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.model.opened_router import at_level, stored
from rayhier.model.retreever import Representations, products, represent
from rayhier.search.segment.exact import exact_rows
from rayhier.spec.router import RetreeverRouting
from rayhier.spec.train import RetreeverTraining
from rayhier.spec.train.retreever import Comparison
from rayhier.train.examples import Examples
from rayhier.train.loop import Phase
from rayhier.train.retreever.dev import SizesMeasure
from rayhier.train.retreever.grow import ADAPTER_RATE, Adapter, grow, principal, sampled, sizes, with_documents
from rayhier.train.retreever.matching import MatchingPhase, from_tower, size_all
from rayhier.train.tower import HeadTower, Side

COLLECTIONS = ("acl_title2abs", "oewn_examples")
MEASURES = ("R@10", "nDCG@10", "R@100")
DEPTH = 100
AT_ONCE = 16_384
Sizes = dict[int, dict[str, Values]]
"""Size -> measure -> values [q]."""
COARSE, SHOWN = (4, 8, 16, 32), (4, 8, 16, 32, 64, 128, 256)
"""Sizes at which the paper compares trees and Matryoshka adapters, and those that the table shows."""
SHARED = ("documents", "epochs", "batch_size")
"""Settings of a tree's training that the adapter it starts at is trained with too."""
LINEAR = "linear adapter"
"""The row that all numbers are told from."""
SCALE = 20.0
"""Factor of a difference of cosines before the sigmoid, as for every cell of k-means here."""
FEWEST_MIXED = 8
"""Fewest documents of a node that a mixture is fitted to; fewer are split by a hyperplane between two of them."""
VARIANCE = 1e-4
"""Least variance of a dimension of a mixture's component; a unit vector's dimensions have about 1/m."""


@dataclass(frozen=True)
class Row:
    """One configuration: a tree, an adapter, a tree that nothing trains, or plain vectors."""

    name: str
    kind: Literal["tree", "linear", "matryoshka", "k-means", "mixtures", "vectors"] = "tree"
    train: dict[str, Any] = field(default_factory=dict)
    router: dict[str, Any] = field(default_factory=dict)
    begin: Literal["identity", "pca"] = "identity"
    """Where an adapter starts."""
    rate: float = 1e-3
    """Learning rate of an adapter."""
    base: bool = False
    """True: the encoder is the one that nothing trained."""
    anchored: bool = False
    """True: an adapter's largest size is held to the encoder's cosines, as a tree's is."""

    @property
    def spec(self) -> RetreeverTraining:
        """Settings of the training."""
        return RetreeverTraining.model_validate({"type": "retreever", **self.train})

    @property
    def start(self) -> "Row":
        """The adapter at whose directions a tree starts."""
        shared = {key: value for key, value in self.train.items() if key in SHARED}
        return Row("", "matryoshka", shared, begin="pca", rate=ADAPTER_RATE)


READ = yaml.safe_load(Path(__file__).with_name("retreever.yaml").read_text())
ROWS, ONCE = ([Row(name, **own) for name, own in READ[kind].items()] for kind in ("core", "once"))
"""Rows that are measured with every seed, and with one."""


class FixedTree:
    """A binary tree that nothing trains: how far texts go left at every split."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def scores(self, vector_NM: Floats) -> Floats:
        """Scores [n, 2^D - 1] of the splits, breadth first, in log odds."""
        raise NotImplementedError

    def represent(self, vector_NM: Floats, similarity: Comparison) -> list[Floats]:
        """What texts are compared by at each level, [n, 2^h] each."""
        parts = np.array_split(vector_NM, max(1, len(vector_NM) // AT_ONCE))
        leaf_NL = np.concatenate([products(torch.from_numpy(self.scores(part)))[-1].numpy() for part in parts])
        stored_NL = stored(leaf_NL)
        levels = (torch.from_numpy(at_level(stored_NL, level)) for level in range(1, self.depth + 1))
        return [np.asarray(represent(level_NK, similarity).numpy()) for level_NK in levels]


class KmeansTree(FixedTree):
    """Hierarchical spherical k-means, two children a node: the nearer centroid is the more probable child."""

    def __init__(self, vector_NM: Floats, depth: int, seed: int) -> None:
        super().__init__(depth)
        levels = hierarchical_kmeans(sampled(vector_NM, seed), 2, depth, seed)
        self.plane_SM = np.concatenate([level[:, 0] - level[:, 1] for level in levels])

    def scores(self, vector_NM: Floats) -> Floats:
        """Scores [n, 2^D - 1]: 20 times the difference of the cosines to both centroids."""
        return np.asarray(SCALE * vector_NM @ self.plane_SM.T, dtype=np.float32)


class MixtureTree(FixedTree):
    """A mixture of two Gaussians with diagonal covariances at every node, fitted to the documents that go there."""

    def __init__(self, vector_NM: Floats, depth: int, seed: int) -> None:
        super().__init__(depth)
        rows, shape = sampled(vector_NM, seed), (2**depth - 1, 2, vector_NM.shape[1])
        self.mean_S2M, self.precision_S2M = np.zeros(shape, np.float32), np.ones(shape, np.float32)
        self.offset_S = np.zeros(2**depth - 1, np.float32)
        own: dict[int, Ints] = {0: np.arange(len(rows))}
        for split in range(2**depth - 1):
            here = own.pop(split)
            vector_HM = rows[here]
            if len(here) >= FEWEST_MIXED:
                mixture = GaussianMixture(
                    2, covariance_type="diag", reg_covar=VARIANCE, random_state=seed, max_iter=100
                )
                mixture.fit(vector_HM)
                precision_2M, weight_2 = 1 / mixture.covariances_, np.log(np.maximum(mixture.weights_, 1e-9))
                self.mean_S2M[split], self.precision_S2M[split] = mixture.means_, precision_2M
                weight_2 = weight_2 + 0.5 * np.log(precision_2M).sum(axis=1)
                self.offset_S[split] = weight_2[0] - weight_2[1]
            elif len(here) > 1:
                self.mean_S2M[split] = vector_HM[:2]
            far_H, other_H = (
                ((vector_HM - self.mean_S2M[split, side]) ** 2) @ self.precision_S2M[split, side] for side in (0, 1)
            )
            left_H = self.offset_S[split] - 0.5 * (far_H - other_H) > 0
            own[2 * split + 1], own[2 * split + 2] = here[left_H], here[~left_H]

    def scores(self, vector_NM: Floats) -> Floats:
        """Scores [n, 2^D - 1]: the log odds of the two components."""
        weight_S2M = self.precision_S2M * self.mean_S2M
        constant_S2 = (weight_S2M * self.mean_S2M).sum(axis=2)
        far_NS, other_NS = (
            vector_NM**2 @ self.precision_S2M[:, side].T - 2 * vector_NM @ weight_S2M[:, side].T + constant_S2[:, side]
            for side in (0, 1)
        )
        return np.asarray(self.offset_S - 0.5 * (far_NS - other_NS), dtype=np.float32)


class Setting:
    """A collection under one encoder, as trees and adapters read it; what is trained is kept below a folder."""

    def __init__(self, collection: Collection, view: View, seed: int, folder: Path) -> None:
        self.view, self.seed, self.folder = view, seed, folder
        own = collection.examples
        self.examples: Examples = replace(own, query_QM=view.encode(own.query_QM), document_NM=view.vectors)
        dev = collection.dev.with_vectors(view.encode(collection.dev.vector_QM))
        query_QM, document_NM = self.examples.query_QM, self.examples.document_NM
        sides: dict[Side, Floats] = {"query": query_QM, "document": document_NM, "dev": dev.vector_QM}
        self.tower = HeadTower(nn.Identity(), sides, torch.device("cpu"))  # type: ignore[arg-type]
        self.measure = SizesMeasure(dev, collection.documents, own.answers(collection.documents.results))

    def path(self, row: Row, *more: Any) -> Path:
        """Place of what is kept of a row."""
        spec = row.spec
        passes = spec.passes(round(len(self.examples.pair_P2) * (1 + spec.documents)))
        settings = [spec.model_dump(mode="json"), row.kind, row.router, row.begin, row.rate, row.anchored, passes]
        return self.folder / f"{cache.key(*settings, *more, self.seed)}.safetensors"

    def trained(self, row: Row) -> Representations:
        """The trained representations of a tree or an adapter."""
        return self._tree(row) if row.kind == "tree" else self._adapter(row)

    def _tree(self, row: Row) -> Representations:
        router = RetreeverRouting.model_validate({"type": "retreever", **row.router})
        rows = {"adapter": row.start, "tree": row}

        def run(name: str, phase: Phase) -> None:
            train(phase, self.path(rows[name]))

        grown = grow(self.tower, self.examples, router, row.spec, self.seed, self.measure, run)
        return grown.eval().representations

    def _adapter(self, row: Row) -> Representations:
        spec, document_NM = row.spec, self.examples.document_NM
        dimension = document_NM.shape[1]
        begin = torch.eye(dimension) if row.begin == "identity" else principal(document_NM, self.seed)
        made = Adapter(begin, sizes(dimension) if row.kind == "matryoshka" else [dimension])
        examples, asking_too = with_documents(self.examples, document_NM, spec, self.seed)
        phase = MatchingPhase(
            made,
            self.tower,
            examples,
            spec,
            self.seed,
            self.measure,
            read=asking_too(from_tower(self.tower)),
            anchor=spec.held("linear") if row.anchored else 0.0,
            schedule="matryoshka" if row.kind == "matryoshka" else "constant",
            rate=row.rate,
        )
        train(phase, self.path(row))
        return made.eval()


class Bench:
    """A collection, its encoders by seed, and results that are kept in `workdir`."""

    def __init__(self, name: str, quality: Path, workdir: Path) -> None:
        self.name, self.folder = name, workdir / name
        self.collection = Collection(name, quality / name)
        self.ids = pa.array(self.collection.documents.results, pa.string())
        self._setting: tuple[tuple[int, bool], Setting] | None = None

    @cached_property
    def test(self) -> Queries:
        """The test queries."""
        return self.collection.queries("test")

    @cached_property
    def judge(self) -> Judge:
        """Judges rankings of these."""
        return Judge(self.test, MEASURES)

    def setting(self, seed: int, *, base: bool) -> Setting:
        """The collection under a seed's trained encoder, or the base one; only the last asked for stays in memory."""
        if self._setting is None or self._setting[0] != (seed, base):
            shipped = self.collection.spec.model_dump(mode="json", include={"encoder", "train"})
            folder = self.folder / cache.key(shipped)
            view = View(self.collection, self.collection.examples, seed, folder / f"seed-{seed}", base=base)
            self._setting = (seed, base), Setting(self.collection, view, seed, folder / ("base" if base else "trained"))
        return self._setting[1]

    def values(self, row: Row, seed: int) -> Sizes:
        """Each measure of every test query at each size that a row has; measured now or read from before."""
        setting = self.setting(seed, base=row.base)

        def named() -> dict[str, Values]:
            made = self._judged(row, setting)
            return {f"{measure} {size}": value_Q for size, own in made.items() for measure, value_Q in own.items()}

        found: Sizes = {}
        for name, value_Q in cache.kept(setting.path(row, "test").with_suffix(".npz"), named).items():
            measure, _, size = name.rpartition(" ")
            found.setdefault(int(size), {})[measure] = value_Q
        return dict(sorted(found.items()))

    def _judged(self, row: Row, setting: Setting) -> Sizes:
        document_NM, query_QM = setting.examples.document_NM, setting.view.encode(self.test.vector_QM)
        made, similarity = representing(row, setting)
        return {
            query_QK.shape[1]: self._measured(exact_rows(query_QK, document_NK, None, DEPTH, similarity))
            for document_NK, query_QK in zip(made(document_NM), made(query_QM), strict=True)
        }

    def _measured(self, best: tuple[Floats, Ints]) -> dict[str, Values]:
        return self.judge.values(whole_scan(*best, self.ids, len(self.ids)))


def representing(row: Row, setting: Setting) -> tuple[Callable[[Floats], list[Floats]], Comparison]:
    """Make the function from vectors to what texts are compared by at every size of a row, and the comparison."""
    if row.kind == "vectors":
        return (lambda vector_NM: [vector_NM]), "cosine"
    if row.kind in ("k-means", "mixtures"):
        tree, depth = KmeansTree if row.kind == "k-means" else MixtureTree, int(row.router.get("depth", 10))
        fixed, similarity = tree(setting.examples.document_NM, depth, setting.seed), row.spec.similarity
        return (lambda vector_NM: fixed.represent(vector_NM, similarity)), similarity
    trained = setting.trained(row)
    return partial(sized, trained), trained.similarity


@torch.no_grad()
def sized(trained: Representations, vector_NM: Floats) -> list[Floats]:
    """Represent texts at every size by their vectors."""
    begins = range(0, len(vector_NM), AT_ONCE)
    parts = [trained.scores(torch.from_numpy(vector_NM[begin : begin + AT_ONCE])).numpy() for begin in begins]
    return size_all(trained, np.concatenate(parts))


Found = Mapping[str, Mapping[int, Mapping[str, Values]]]
"""Name of a row -> size -> measure -> values [s, q] of seeds and queries."""


def measured(bench: Bench, seeds: int, report: Callable[[str], None]) -> Found:
    """Measure all rows, each with its number of seeds."""
    found: dict[str, dict[int, dict[str, Values]]] = {}
    for row, count in [*((row, seeds) for row in ROWS), *((row, 1) for row in ONCE)]:
        own = [bench.values(row, seed) for seed in range(count)]
        found[row.name] = {
            size: {name: np.stack([one[size][name] for one in own]) for name in own[0][size]} for size in own[0]
        }
        report(f"{bench.name}: {row.name}")
    return found


def whole(found: Found) -> list[str]:
    """Every row at its largest size, with points over the linear adapter."""
    control, body = found[LINEAR][max(found[LINEAR])], []
    for name, own in found.items():
        full = max(own)
        cells = [compared(own[full][one], None if name == LINEAR else control[one]) for one in MEASURES]
        body.append([name, f"{full:,}", *chain(*cells)])
    return table(["", "numbers", *chain(*((measure, "over linear") for measure in MEASURES))], body)


def few(found: Found) -> list[str]:
    """R@10 and R@100 at every size, and means of 4 to 32 numbers."""
    body = []
    for name, own in found.items():
        if len(own) > 1:
            low = [mean([float(own[size][measure].mean()) for size in COARSE]) for measure in MEASURES]
            at = [
                " / ".join(f"{own[size][one].mean():.3f}" for one in ("R@10", "R@100")) if size in own else UNKNOWN
                for size in SHOWN
            ]
            body.append([name, *low, *at])
    return table(["", *(f"{measure}, mean of 4 to 32" for measure in MEASURES), *map(str, SHOWN)], body)


def main() -> None:
    """Measure, and print the tables of each collection."""
    parser = Options("Compare ReTreever, adapters and other trees.", "papers/retreever", "seeds", "quality")
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    given, report = parser.parse_args(), clock()
    set_threads(1)
    for name in given.collections:
        found = measured(Bench(name, given.quality, given.workdir), given.seeds, report)
        titled = [("All numbers", whole(found)), ("Few numbers", few(found))]
        print("\n".join([f"## {name}", *sections(titled, 3), ""]), flush=True)


if __name__ == "__main__":
    main()
