"""A collection under an encoder, and what is trained and built on its vectors: routers, centroids, lessons."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from quality_scan import DEPTH, Asked, Judged
from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.dataset.documents import in_memory, load_dev, load_documents
from rayhier.dataset.queries import load_queries
from rayhier.evaluate.part import Part
from rayhier.model.encoder import ResidualHead
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.plan import make_plan
from rayhier.arrays import Ints
from rayhier.spec import JobSpec, load
from rayhier.spec.index import IndexSpec
from rayhier.spec.router import EhiSpec
from rayhier.storage.artifact import Artifact
from rayhier.arrays import Floats
from rayhier.train.contrast.contrast import Contrast
from rayhier.train.data import judged_pairs, load_examples
from rayhier.train.dev import DevMeasure, ExactMeasure
from rayhier.train.examples import Examples
from rayhier.train.learned_ivf.lessons import Lessons
from rayhier.train.loop import Loop
from rayhier.train.learned_ivf.settle import empty_router, make_router, settle
from rayhier.train.learned_ivf.teacher import Teacher
from rayhier.train.tower import HeadTower, Side
from rayhier.train.ehi.joint import Joint
from scifact import collection

SPEC = Path(__file__).parents[1] / "specs" / "scifact.yaml"


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

    router: LearnedIvfRouter
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

    def joint(self, leaves: int, warm_start: str) -> Joint:
        """The paper's training: encoder and router at once."""
        spec = EhiSpec.model_validate(
            {"type": "ehi", "training": "joint", "branching": leaves, "warm_start": warm_start}
        )
        measure = DevMeasure(self.data.dev, self.data.documents.results)
        trainer = Joint(self._tower(), self.examples, spec, self.data.spec.train, self.seed, measure)
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
