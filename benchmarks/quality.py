"""Documents visited against recall, every system beside its controls: `make bench-quality`.

docs/quality.md has the protocol, quality_page.py what becomes of the curves that are measured here. Every curve is a
file below WORKDIR/NAME/cache with the recall, documents visited and cost of every query at every beam, so a run that
was interrupted goes on, and one that is complete only writes its page again. After a change of code remove the cache.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import torch

from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.cluster.spill import CANDIDATES, second_leaves
from rayhier.evaluate.balance import balance
from rayhier.evaluate.baselines import list_choices
from rayhier.evaluate.curve import Point, System, beams, reach
from rayhier.evaluate.data import in_memory, load_dev, load_documents, load_queries
from rayhier.evaluate.hnsw import Hnsw, efforts
from rayhier.evaluate.part import Part
from rayhier.evaluate.scann_tree import ScannTree
from rayhier.model.encoder import ResidualHead
from rayhier.model.router import route_all
from rayhier.model.taught import TaughtRouter
from rayhier.plan import make_plan
from rayhier.search.lists import Ints
from rayhier.spec import JobSpec, load
from rayhier.spec.index import IndexSpec
from rayhier.spec.router import EhiSpec
from rayhier.storage.artifact import Artifact
from rayhier.storage.columns import Floats
from rayhier.train.contrast import Contrast
from rayhier.train.data import judged_pairs, load_examples
from rayhier.train.dev import DevMeasure, ExactMeasure
from rayhier.train.examples import Examples
from rayhier.train.lessons import Lessons
from rayhier.train.loop import Loop
from rayhier.train.settle import empty_router, make_router, settle
from rayhier.train.teacher import Teacher
from rayhier.train.tower import HeadTower, Side
from rayhier.train.trainer import Trainer

sys.path.insert(0, str(Path(__file__).parent))
from quality_page import Measured, Results, write_page
from quality_scan import DEPTH, Asked, Judged, Places, Row
from quality_stats import Curve, mean_curve
from scifact import collection

ROOT = Path(__file__).parents[1]
SPEC = ROOT / "specs" / "scifact.yaml"
COLLECTIONS = ("scifact", "acl_title2abs", "oewn_examples", "cranfield")
TUNED = (
    "faiss_ivf",
    "faiss_ivf_same_encoder",
    "faiss_ivf_spill",
    "scann",
    "recipe",
    "ehi@dev",
    "ehi_warm",
    "ehi_cold",
)
"""Systems whose number of leaves or lists is chosen on dev."""
LISTS = {"faiss_ivf": 1, "faiss_ivf_same_encoder": 1, "faiss_ivf_spill": 2}
"""Lists of a document."""
JOINT = {"ehi_warm": "kmeans", "ehi_cold": "none"}
"""How the paper's own training begins."""
JOINT_LEAVES = (64, 256, 1024)
JOINT_ON = ("scifact",)
"""Where it runs: elsewhere its epochs take hours on two cores."""
EQUAL = ("faiss_ivf_same_encoder", "faiss_ivf_spill", "recipe", "ehi")
"""Systems measured at equal leaf counts too."""
SHAPES = {"scifact": ((64, 1), (8, 2), (4, 3)), "oewn_examples": ((1024, 1), (32, 2))}
"""Children of a node and levels, equal leaf counts."""
BESIDE_SEEDS = 3
"""Of what stands beside the main table."""
FOLDS = {"scifact": 5}
"""Collections with too few dev queries to choose on: parts of the train queries, each in turn held out."""
FARTHEST, LIBRARY_FARTHEST = 0.4, 0.125
ENOUGH = 0.95
BEGAN = time.monotonic()


def say(text: str) -> None:
    """Progress, with the seconds so far."""
    print(f"{time.monotonic() - BEGAN:7.0f} s  {text}", file=sys.stderr, flush=True)


class Data:
    """A collection under the base encoder, from published artifacts."""

    def __init__(self, name: str, workdir: Path, split: str) -> None:
        overrides = [f"workdir={workdir / name}", f"corpus.path={collection(name)}"]
        command = [sys.executable, "-m", "rayhier.run", str(SPEC)]
        command += [part for override in overrides for part in ("--set", override)]
        subprocess.run([*command, "--stage", "corpus", "--stage", "embed"], check=True, stdout=subprocess.DEVNULL)
        plan = make_plan(load(SPEC, overrides))
        self.spec = plan.spec
        self.corpus, self.vectors = (Artifact.open(plan.step(kind).place.folder) for kind in ("corpus", "vectors"))
        self.documents = load_documents(self.corpus, self.vectors)
        if self.documents.parents is not None:
            sys.exit(f"{name}: its documents are passages; this benchmark reads whole documents")
        self.dev = load_dev(self.corpus, self.vectors, in_memory(self.documents))
        self.examples = load_examples(self.spec.train, self.corpus, self.vectors, self.documents)
        self.split = split

    @cached_property
    def chooses(self) -> Asked:
        """The dev queries."""
        return Asked.of(self.dev, self.documents.ids)

    @cached_property
    def asked(self) -> Asked:
        """What the final measurement asks: nothing else reads the test split."""
        if self.split == "dev":
            return self.chooses
        return Asked.of(load_queries(self.corpus, self.vectors, self.split), self.documents.ids)

    def folds(self, count: int) -> Iterator[tuple[Examples, Asked]]:
        """Train queries in parts: examples without each part, and the part."""
        queries = load_queries(self.corpus, self.vectors, "train")
        fold_Q = np.random.default_rng(0).permutation(len(queries)) % count
        query_P, document_P = self.examples.pair_P2.T
        for fold in range(count):
            kept = np.flatnonzero(fold_Q != fold)
            own = fold_Q[query_P] != fold
            pair_P2 = np.stack([np.searchsorted(kept, query_P[own]), document_P[own]], axis=1)
            examples = Examples(queries.vector_QM[kept], self.documents.vector_NM, pair_P2)
            yield examples, Asked.of(queries, self.documents.ids, np.flatnonzero(fold_Q == fold))


@dataclass(frozen=True)
class Taught:
    """A router, and the leaves [n, 2] of its documents: twice the same where there is no second."""

    router: TaughtRouter
    leaf_NR: Ints


class View:
    """A collection under one encoder and all that is built on its vectors; `folder` keeps what was trained."""

    def __init__(self, data: Data, examples: Examples, seed: int, folder: Path, *, base: bool = False) -> None:
        self.data, self.examples, self.seed, self.folder = data, examples, seed, folder
        self.trains = not base and not examples.same
        self._centroids: dict[int, Floats] = {}
        self._judged: dict[int, Judged] = {}
        self._taught: dict[tuple[EhiSpec, IndexSpec], Taught] = {}

    @cached_property
    def contrast(self) -> Contrast:
        """The encoder: by contrast, or as it came."""
        measure = ExactMeasure(self.data.dev, self.data.documents)
        contrast = Contrast(self._tower(), self.examples, self.data.spec.train, self.seed, measure)
        if self.trains:
            finish(contrast, self.folder / "encoder.safetensors")
        return contrast

    def documents(self) -> Floats:
        """Vectors of the documents [n, m]."""
        return self.contrast.documents() if self.trains else self.data.documents.vector_NM

    def encode(self, vector_QM: Floats) -> Floats:
        """Vectors of queries."""
        return encoded(self.contrast.tower.module, vector_QM) if self.trains else vector_QM

    def part(self) -> Part:
        """The documents, named by row."""
        ids = pa.array(np.arange(len(self.documents())))
        return Part(ids, ids, self.documents())

    def exact(self, asked: Asked) -> Floats:
        """R@100 [q] of a scan of everything."""
        return asked.recall(self.part().exact(self.encode(asked.vector_QM), DEPTH).ranking)

    def judged(self, asked: Asked) -> Judged:
        """What is relevant to some queries, and what outranks it here."""
        if id(asked) not in self._judged:
            self._judged[id(asked)] = Judged(asked, self.encode(asked.vector_QM), self.documents())
        return self._judged[id(asked)]

    def centroids(self, leaves: int) -> Floats:
        """Spherical k-means of the documents."""
        if leaves not in self._centroids:
            self._centroids[leaves] = spherical_kmeans(self.documents(), leaves, self.seed)
        return self._centroids[leaves]

    @cached_property
    def lessons(self) -> tuple[Lessons, Lessons]:
        """What routers are taught, and dev."""
        contrast, teaching = self.contrast, self.data.spec.train.teaching
        query_QM = contrast.side("query")
        pairs = judged_pairs(self.data.dev, self.data.documents).pair_P2
        lessons = Lessons.of(self.examples, query_QM, self.documents(), teaching, self.seed)
        return lessons, Lessons.asked(contrast.side("dev"), pairs)

    def taught(self, spec: JobSpec) -> Taught:
        """The router of a spec, taught, and where it puts documents."""
        key = spec.router, spec.index
        if key not in self._taught:
            plain = {"residual": "none"} if self.examples.same else {}
            router = make_router(spec.router.model_copy(update=plain), self.documents(), self.seed)
            leaf_NR = settle(router, self.documents(), spec, self.seed)
            if not self.examples.same:
                teacher = Teacher(router, leaf_NR, *self.lessons, spec.train.teaching, self.seed)
                train(teacher)
                teacher.restore_best()
            self._taught[key] = Taught(router, leaf_NR)
        return self._taught[key]

    def untaught(self, spec: JobSpec) -> Taught:
        """The same before it was taught: documents as they lie, leaves by their centroids, the screen, no bend."""
        taught = self.taught(spec)
        plain = spec.router.model_copy(update={"residual": "none"})
        n, m = self.documents().shape
        router = empty_router(plain, n, m, self.seed)
        router.begin(taught.router.centroid_LM)
        return Taught(router, taught.leaf_NR)

    def joint(self, leaves: int, warm_start: str) -> Trainer:
        """The paper's training: encoder and router at once."""
        spec = EhiSpec.model_validate(
            {"type": "ehi", "training": "joint", "branching": leaves, "warm_start": warm_start}
        )
        measure = DevMeasure(self.data.dev, self.data.documents.results)
        trainer = Trainer(self._tower(), self.examples, spec, self.data.spec.train, self.seed, measure)
        finish(trainer, self.folder / f"joint-{warm_start}-{leaves}.safetensors")
        return trainer

    def _tower(self) -> HeadTower:
        stored: dict[Side, Floats] = {
            "query": self.examples.query_QM,
            "document": self.data.documents.vector_NM,
            "dev": self.data.dev.vector_QM,
        }
        return HeadTower(ResidualHead(self.data.documents.vector_NM.shape[1]), stored, torch.device("cpu"))


def finish(loop: Loop, path: Path) -> None:
    """Train, or take what an earlier run trained; then back to the best on dev."""
    if path.is_file():
        loop.load(path)
    else:
        train(loop)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        loop.save(partial)
        partial.replace(path)
    loop.restore_best()


def train(loop: Loop) -> None:
    """Every epoch."""
    loop.start()
    while not loop.finished:
        loop.run_epoch()


@torch.no_grad()
def encoded(module: torch.nn.Module, vector_QM: Floats) -> Floats:
    """Vectors [q, m] of a trained head."""
    return np.asarray(module(torch.from_numpy(vector_QM)).numpy())


@dataclass(frozen=True)
class Routed:
    """A system of leaves that some queries are asked of."""

    places: Places
    judged: Judged
    probe: Callable[[int], Ints]
    """Beam -> leaves [q, beam]."""
    routing: Callable[[int], float]
    """Beam -> documents' worth of multiply-adds."""

    @property
    def sizes(self) -> Ints:
        """Rows of each leaf."""
        return self.places.sizes

    def exact(self) -> Floats:
        """R@100 [q] of a scan of everything with its encoder."""
        return self.judged.exact()

    def walk(self) -> Iterator[Row]:
        """Beam after beam until two fifths of the documents are visited."""
        documents = len(self.places.leaf_NR)
        for beam in beams(self.places.n_leaves):
            probed_QL = self.places.probed(self.probe(beam))
            visited_Q, scanned_Q = self.places.counts(probed_QL)
            recall_Q = self.judged.within(probed_QL, self.places.leaf_NR)
            row = Row(beam, recall_Q, share(visited_Q, documents), share(scanned_Q + self.routing(beam), documents))
            yield row
            if row.visited_Q.mean() >= FARTHEST:
                return


@dataclass(frozen=True)
class Library:
    """A library that takes the whole index, asked by scanning."""

    system: System
    asked: Asked
    sizes: Ints
    """Rows of each leaf; none where there are no leaves."""
    exact_Q: Floats
    """R@100 of a scan of everything with its encoder."""

    def exact(self) -> Floats:
        """The same."""
        return self.exact_Q

    def walk(self) -> Iterator[Row]:
        """Wider and wider until an eighth of the documents is visited."""
        for beam in self.system.beams:
            found = self.system.search(beam)
            recall_Q = self.asked.recall(found.ranking)
            documents, cost_Q = self.system.documents, found.scanned_Q + self.system.routing(beam)
            row = Row(beam, recall_Q, share(found.visited_Q, documents), share(cost_Q, documents))
            yield row
            if row.visited_Q.mean() >= LIBRARY_FARTHEST:
                return


Built = Routed | Library


def share(count_Q: Floats | Ints, documents: int) -> Floats:
    """Counts [q] as fractions of the corpus."""
    return np.asarray(count_Q / documents, dtype=np.float32)


def build(view: View, name: str, leaves: int, asked: Asked) -> Built:
    """A system by name: `taught_8x2` is a taught tree of that shape."""
    if name in JOINT:
        return joint(view, name, leaves, asked)
    if name in ("hnsw", "scann"):
        return library(view, name, leaves, asked)
    if name in LISTS:
        return ivf(view, name, leaves, asked)
    spec = view.data.spec
    router: dict[str, object] = {"branching": leaves}
    index: dict[str, object] = {}
    if name == "recipe":
        router, index = router | {"screen": 0}, {"spilled": 1.0}
    if name.startswith("taught_"):
        branching, height = (int(number) for number in name.removeprefix("taught_").split("x"))
        router = {"branching": branching, "height": height}
    own = {"router": spec.router.model_copy(update=router), "index": spec.index.model_copy(update=index)}
    spec = spec.model_copy(update=own)
    return routed(view, view.untaught(spec) if name == "untaught" else view.taught(spec), asked)


def routed(view: View, taught: Taught, asked: Asked) -> Built:
    """A router over its leaves."""
    router, probe = taught.router, torch.from_numpy(view.encode(asked.vector_QM))

    def leaves(beam: int) -> Ints:
        return np.asarray(route_all(router, probe, beam)[0].numpy())

    def routing(beam: int) -> float:
        return router.multiply_adds(beam) / router.dimension

    return Routed(Places(taught.leaf_NR, router.n_leaves), view.judged(asked), leaves, routing)


def ivf(view: View, name: str, lists: int, asked: Asked) -> Built:
    """K-means lists, probed by nearest centroid; routing costs the centroids."""
    centroid_LM = view.centroids(lists)
    document_NM, count = view.documents(), 1 if LISTS[name] == 1 else min(CANDIDATES, lists)
    leaf_NC = nearest(document_NM, centroid_LM, count)[0]
    leaf_NR = leaf_NC[:, :1]
    if count > 1:
        second_N = leaf_NC[np.arange(len(leaf_NC)), second_leaves(document_NM, leaf_NC, centroid_LM, "soar")]
        leaf_NR = np.stack([leaf_NC[:, 0], second_N], axis=1)
    order_QL: Ints = nearest(view.encode(asked.vector_QM), centroid_LM, lists)[0]
    return Routed(Places(leaf_NR, lists), view.judged(asked), lambda beam: order_QL[:, :beam], lambda _: float(lists))


def library(view: View, name: str, leaves: int, asked: Asked) -> Built:
    """A library that takes the whole index: HNSW, or ScaNN's tree."""
    query_QM, ids = view.encode(asked.vector_QM), pa.array(np.arange(len(view.documents())))
    exact_Q = view.exact(asked)
    if name == "hnsw":
        graph = Hnsw(ids, None, view.documents())
        steps, routing = efforts(len(ids)), 0.0
        system = System("", len(ids), steps, lambda effort: graph.search(query_QM, effort, DEPTH), lambda _: routing)
    else:
        tree = ScannTree(ids, None, view.documents(), leaves)
        system = System(
            "", len(ids), beams(leaves), lambda beam: tree.search(query_QM, beam, DEPTH), lambda _: float(leaves)
        )
    return Library(system, asked, np.zeros(0, np.int64), exact_Q)


def joint(view: View, name: str, leaves: int, asked: Asked) -> Built:
    """The paper's training with an encoder of its own."""
    trainer = view.joint(leaves, JOINT[name])
    now = trainer.snapshot()
    query_QM = encoded(trainer.tower.module, asked.vector_QM)
    leaf_NR = route_all(now.router, torch.from_numpy(now.document_NM), 1)[0].numpy()

    def routing(beam: int) -> float:
        return float(now.router.multiply_adds(beam) / query_QM.shape[1])

    judged = Judged(asked, query_QM, now.document_NM)
    return Routed(Places(leaf_NR, now.router.n_leaves), judged, lambda beam: now.leaves(query_QM, beam), routing)


@dataclass(frozen=True)
class Measurement:
    """One system with so many leaves (0: it has none) and one seed: a file of results."""

    system: str
    leaves: int
    seed: int

    @property
    def file(self) -> str:
        """Its name."""
        return f"{self.system}-{self.leaves}-{self.seed}.npz"


class Bench:
    """A collection's choices and curves, kept below its cache."""

    def __init__(self, name: str, workdir: Path, seeds: int, split: str) -> None:
        self.name, self.workdir, self.seeds, self.split = name, workdir, seeds, split
        self.spec = load(SPEC, [])
        shipped = json.dumps([getattr(self.spec, part).model_dump() for part in ("router", "train", "index")])
        digest = hashlib.blake2b(shipped.encode(), digest_size=4).hexdigest()
        self.folder = workdir / name / "cache" / digest
        self._view: View | None = None

    @cached_property
    def data(self) -> Data:
        """Loaded when something is left to measure."""
        return Data(self.name, self.workdir, self.split)

    @property
    def tuned(self) -> tuple[str, ...]:
        """Systems that choose their leaves; ScaNN where it is installed."""
        scann = importlib.util.find_spec("scann") is not None
        left_out = set() if scann else {"scann"}
        left_out |= set() if self.name in JOINT_ON else set(JOINT)
        return tuple(name for name in TUNED if name not in left_out)

    def view(self, seed: int) -> View:
        """The trained encoder of a seed; the last one stays."""
        if self._view is None or self._view.seed != seed:
            self._view = View(self.data, self.data.examples, seed, self.folder / f"seed-{seed}")
        return self._view

    def base(self, seed: int) -> View:
        """The encoder as it came."""
        return View(self.data, self.data.examples, seed, self.folder, base=True)

    @cached_property
    def choices(self) -> dict[str, int]:
        """The corpus's `documents`, and the leaves of every tuned system."""
        path = self.folder / "choices.json"
        saved = json.loads(path.read_text()) if path.is_file() else {"costs": {}}
        for name in self.tuned:
            if name not in saved["costs"]:
                saved["documents"] = len(self.data.documents.ids)
                saved["costs"][name] = self._costs(name)
                write(path, json.dumps(saved, indent=1).encode())
        best = {name: int(min(costs, key=costs.get)) for name, costs in saved["costs"].items()}
        return {"documents": saved["documents"], **best}

    @cached_property
    def _settings(self) -> list[tuple[View, View, Asked]]:
        """What choosing asks: base and trained encoders, and queries that neither was trained on."""
        data, base = self.data, self.base(0)
        if self.name not in FOLDS:
            return [(base, self.view(0), data.chooses)]
        folds = enumerate(data.folds(FOLDS[self.name]))
        return [(base, View(data, ex, 0, self.folder / f"fold-{fold}"), asked) for fold, (ex, asked) in folds]

    def _costs(self, name: str) -> dict[str, float]:
        """Mean cost for 95% of exact R@100 by number of leaves, those that cannot be the least left out."""
        documents = len(self.data.documents.ids)
        choices = list_choices(documents)
        if name in JOINT:
            choices = [leaves for leaves in JOINT_LEAVES if leaves <= documents / 4]
        costs: dict[str, float] = {}
        best = np.inf
        for leaves in choices:
            if (name in LISTS or name == "scann") and leaves / documents >= best:
                break
            total = 0.0
            for base, trained, asked in self._settings:
                view = base if name == "faiss_ivf" else trained
                total += self._cost(view, name, leaves, asked, best * len(self._settings) - total)
                if not np.isfinite(total):
                    break
            cost = total / len(self._settings)
            best = min(best, cost)
            costs[str(leaves)] = cost
            say(f"{self.name}: {name} with {leaves} leaves costs {cost:.4f}")
        return costs

    def _cost(self, view: View, name: str, leaves: int, asked: Asked, most: float) -> float:
        """Cost for 95% of exact R@100; infinite where it is never reached or more than so much."""
        built = build(view, name, leaves, asked)

        def points() -> Iterator[Point]:
            for row in built.walk():
                point = row.point()
                yield point
                if point.cost_mean > most:
                    return

        cost = reach(points(), "R@100", ENOUGH * float(built.exact().mean()))
        return cost if np.isfinite(cost) and cost <= most else np.inf

    @property
    def shipped(self) -> int:
        """Leaves as `auto` has them."""
        return self.spec.router.leaves(self.choices["documents"])

    @property
    def equal(self) -> int:
        """The power of two below."""
        return 1 << (self.shipped - 1).bit_length() - 1

    def main_runs(self, system: str) -> list[Measurement]:
        """The seeds of a system of the main table."""
        leaves = {"ehi": self.shipped, "untaught": self.shipped, "hnsw": 0}
        chosen = leaves[system] if system in leaves else self.choices[system]
        return [Measurement(system, chosen, seed) for seed in range(self.seeds)]

    def beside_runs(self, system: str, leaves: int) -> list[Measurement]:
        """The seeds of a system of the tables beside it."""
        return [Measurement(system, leaves, seed) for seed in range(min(BESIDE_SEEDS, self.seeds))]

    @property
    def systems(self) -> list[str]:
        """Rows of the main table."""
        return [*self.tuned, "hnsw", "untaught", "ehi"]

    @property
    def shapes(self) -> dict[str, list[Measurement]]:
        """Seeds of each tree of equal leaf counts."""
        shapes = SHAPES.get(self.name, ())
        return {
            f"({branching}, {height})": self.beside_runs(f"taught_{branching}x{height}", branching**height)
            for branching, height in shapes
        }

    @property
    def wanted(self) -> list[Measurement]:
        """All measurements, a seed's together."""
        runs = [run for system in self.systems for run in self.main_runs(system)]
        runs += [run for system in EQUAL for run in self.beside_runs(system, self.equal)]
        runs += [run for seeds in self.shapes.values() for run in seeds]
        return sorted(dict.fromkeys(runs), key=lambda run: run.seed)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to measure."""
        path = self.folder / "choices.json"
        chosen = path.is_file() and set(json.loads(path.read_text())["costs"]) >= set(self.tuned)
        return chosen and all(self._path(run).is_file() for run in self.wanted)

    def measure(self) -> None:
        """All that is left."""
        for wanted in self.wanted:
            if not self._path(wanted).is_file():
                began = time.monotonic()
                self._measure(wanted)
                say(f"{self.name}: {wanted.file} in {time.monotonic() - began:.0f} s")

    def _measure(self, wanted: Measurement) -> None:
        view = self.base(wanted.seed) if wanted.system == "faiss_ivf" else self.view(wanted.seed)
        built = build(view, wanted.system, wanted.leaves, self.data.asked)
        rows = list(built.walk())
        path = self._path(wanted)
        partial = path.with_suffix(".part")
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            np.savez(
                file,
                beam=np.array([row.beam for row in rows]),
                recall=np.stack([row.recall_Q for row in rows]),
                visited=np.stack([row.visited_Q for row in rows]),
                cost=np.stack([row.cost_Q for row in rows]),
                exact=built.exact(),
                sizes=built.sizes,
            )
        partial.replace(path)

    def _path(self, run: Measurement) -> Path:
        return self.folder / self.split / run.file

    def results(self) -> Results:
        """What the page shows."""
        main = {system: self._measured(self.main_runs(system)) for system in self.systems}
        beside = {system: self._measured(self.beside_runs(system, self.equal)) for system in EQUAL}
        shapes = {shape: self._measured(runs) for shape, runs in self.shapes.items()}
        return Results(self.name, self.choices["documents"], self.seeds, main, beside, shapes)

    def _measured(self, runs: Sequence[Measurement]) -> Measured:
        """The mean over seeds, and each seed's balance, nothing for what has no leaves."""
        curves, balances = [], []
        for wanted in runs:
            with np.load(self._path(wanted)) as saved:
                names = ("recall", "visited", "cost", "exact")
                curves.append(Curve(*(saved[name].astype(np.float64) for name in names)))
                balances += [balance(saved["sizes"])] if len(saved["sizes"]) else []
        return Measured(runs[0].leaves, len(runs), mean_curve(curves), balances)


def write(path: Path, content: bytes) -> None:
    """All of a file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_bytes(content)
    partial.replace(path)


def finished(name: str, workdir: Path, seeds: int, split: str) -> Bench | None:
    """A collection with as many seeds as are measured; None before the first."""
    benches = (Bench(name, workdir, count, split) for count in range(seeds, 0, -1))
    return next((bench for bench in benches if bench.complete), None)


def main() -> int:
    """Measure the given collections, then write the page of all that are complete."""
    parser = argparse.ArgumentParser(description="Documents visited against recall, beside controls.")
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=COLLECTIONS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workdir", type=Path, default=ROOT / "runs" / "quality")
    parser.add_argument("--split", choices=("test", "dev"), default="test", help="dev: for work on this file itself")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    faiss.omp_set_num_threads(given.threads)
    workdir = given.workdir.absolute()
    for name in given.collections:
        Bench(name, workdir, given.seeds, given.split).measure()
    every = [finished(name, workdir, given.seeds, given.split) for name in COLLECTIONS]
    folder = ROOT / "docs" if given.split == "test" else workdir
    print(write_page([bench.results() for bench in every if bench is not None], folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
