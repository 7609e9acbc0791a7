"""A collection under an encoder, and what is trained and built on its vectors: routers, centroids, targets."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.collection import Collection
from benchmarks.quality.recall import Questions, Relevance
from benchmarks.training import encode, train
from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.spec import JobSpec
from rayhier.spec.index import IndexSpec
from rayhier.spec.router import EhiRouting, LearnedIvfRouting
from rayhier.spec.train import ContrastTraining, EhiTraining, HceTraining
from rayhier.train.data import judged_pairs
from rayhier.train.ehi.joint import Joint
from rayhier.train.encoder import EncoderPhase
from rayhier.train.examples import Examples
from rayhier.train.learned_ivf.kmeans_start import empty_router, make_router, settle
from rayhier.train.learned_ivf.router_phase import RouterPhase
from rayhier.train.learned_ivf.targets import Targets


@dataclass(frozen=True)
class Index:
    """A router, and the leaves [n, 2] of its documents: the first again where there is no second."""

    router: LearnedIvfRouter
    leaf_NR: Ints


class View:
    """A collection under one encoder and all that is built on its vectors; `folder` keeps what was trained."""

    def __init__(
        self, collection: Collection, examples: Examples, seed: int, folder: Path, *, base: bool = False
    ) -> None:
        self.collection, self.examples, self.seed, self.folder = collection, examples, seed, folder
        self.trains = not base and not examples.same
        self._centroids: dict[int, Floats] = {}
        self._relevance: dict[int, Relevance] = {}
        self._indexes: dict[tuple[LearnedIvfRouting, IndexSpec], Index] = {}

    @cached_property
    def encoder(self) -> EncoderPhase:
        """Encoder: trained as the collection's spec has it, by contrast or by HCE with judged pairs; or untrained."""
        training = self.collection.spec.train
        assert isinstance(training, ContrastTraining | HceTraining)
        phase = self.collection.encoder(self.examples, training, self.seed)
        if self.trains:
            train(phase, self.folder / "encoder.safetensors")
        return phase

    def over(self, collection: Collection) -> "View":
        """Other documents under this trained encoder."""
        view = View(collection, collection.examples, self.seed, self.folder)
        view.encoder = self.encoder
        return view

    @cached_property
    def vectors(self) -> Floats:
        """Vectors of the documents [n, m]."""
        return self.encode(self.collection.documents.vector_NM)

    def encode(self, vector_NM: Floats) -> Floats:
        """Vectors of texts by those of the base encoder."""
        return encode(self.encoder.tower.module, vector_NM) if self.trains else vector_NM

    def relevance(self, questions: Questions) -> Relevance:
        """What is relevant to some queries, and what outranks it here."""
        if id(questions) not in self._relevance:
            self._relevance[id(questions)] = Relevance(questions, self.encode(questions.vector_QM), self.vectors)
        return self._relevance[id(questions)]

    def centroids(self, leaves: int) -> Floats:
        """Spherical k-means of the documents."""
        if leaves not in self._centroids:
            self._centroids[leaves] = spherical_kmeans(self.vectors, leaves, self.seed)
        return self._centroids[leaves]

    @cached_property
    def targets(self) -> tuple[Targets, Targets]:
        """Targets that teach routers, and the dev queries' answers."""
        query_QM, dev_QM = (self.encoder.pairs.side(side) for side in ("query", "dev"))
        pairs = judged_pairs(self.collection.dev, self.collection.documents).pair_P2
        router = self.collection.spec.router
        assert isinstance(router, LearnedIvfRouting)
        targets = Targets.of(self.examples, query_QM, self.vectors, router.teaching, self.seed)
        return targets, Targets.judged(dev_QM, pairs)

    def index(self, spec: JobSpec) -> Index:
        """The router of a spec, taught where there are judged queries, and where it puts documents."""
        own = spec.router
        assert isinstance(own, LearnedIvfRouting)
        key = own, spec.index
        if key not in self._indexes:
            bend = {"rank": 0} if self.examples.same else {}
            router = make_router(own.model_copy(update=bend), self.vectors, self.seed)
            leaf_NR = settle(router, self.vectors, spec, self.seed)
            if not self.examples.same:
                train(RouterPhase(router, leaf_NR, *self.targets, own.teaching, self.seed))
            self._indexes[key] = Index(router, leaf_NR)
        return self._indexes[key]

    def untaught(self, spec: JobSpec) -> Index:
        """An index before it is taught: documents as they lie, leaves by their centroids, the screen, no bend."""
        index, own, (n, m) = self.index(spec), spec.router, self.vectors.shape
        assert isinstance(own, LearnedIvfRouting)
        router = empty_router(own.model_copy(update={"rank": 0}), n, m, self.seed)
        router.begin(index.router.cells.centroid_LM)
        return Index(router, index.leaf_NR)

    def joint(self, leaves: int, warm_start: str) -> Joint:
        """The paper's training: encoder and router at once."""
        router = EhiRouting.model_validate({"type": "ehi", "branching": leaves, "warm_start": warm_start})
        joint = self.collection.joint(self.examples, router, EhiTraining(type="ehi"), self.seed)
        train(joint, self.folder / f"joint-{warm_start}-{leaves}.safetensors")
        return joint
