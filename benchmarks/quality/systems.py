"""The systems of the comparison: each gives recall, documents visited and cost of every query, beam after beam."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.quality.recall import DEPTH, Places, Questions, Relevance, Row
from benchmarks.quality.view import Index, View
from benchmarks.training import encode
from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import nearest
from rayhier.evaluate.curve import System, beams
from rayhier.evaluate.systems.hnsw import Hnsw, efforts
from rayhier.evaluate.systems.scann import ScannTree
from rayhier.model.encoded import Encoded
from rayhier.model.router import route_all
from rayhier.model.spill import CANDIDATES, Spill, second_leaves

LISTS = {"faiss_ivf": 1, "faiss_ivf_same_encoder": 1, "faiss_ivf_spill": 2}
"""Lists of a document, by name of the system."""
JOINT = {"ehi_warm": "kmeans", "ehi_cold": "none"}
"""How the paper's training begins, by name of the system."""
FARTHEST, LIBRARY_FARTHEST = 0.4, 0.125


@dataclass(frozen=True)
class Leaves:
    """Documents in leaves, and the queries that visit them."""

    places: Places
    relevance: Relevance
    probe: Callable[[int], Ints]
    """Beam -> leaves [q, beam]."""
    routing: Callable[[int], float]
    """Beam -> cost of routing a query, in dot products of the vectors' dimension."""

    @property
    def sizes(self) -> Ints:
        """Rows of each leaf."""
        return self.places.sizes

    def exact(self) -> Floats:
        """R@100 [q] of a scan of everything with its encoder."""
        return self.relevance.exact()

    def walk(self) -> Iterator[Row]:
        """Beam after beam until two fifths of the documents are visited."""
        documents = len(self.places.leaf_NR)
        for beam in beams(self.places.n_leaves):
            probed_QL = self.places.probed(self.probe(beam))
            visited_Q, scanned_Q = self.places.counts(probed_QL)
            recall_Q = self.relevance.within(probed_QL, self.places.leaf_NR)
            row = Row(beam, recall_Q, share(visited_Q, documents), share(scanned_Q + self.routing(beam), documents))
            yield row
            if row.visited_Q.mean() >= FARTHEST:
                return


@dataclass(frozen=True)
class Library:
    """A library that holds the whole index, and the queries that it answers."""

    system: System
    questions: Questions
    sizes: Ints
    """Rows of each leaf; none where there are no leaves."""
    exact_Q: Floats
    """R@100 of a scan of everything with its encoder."""

    def exact(self) -> Floats:
        """R@100 [q] of a scan of everything with its encoder."""
        return self.exact_Q

    def walk(self) -> Iterator[Row]:
        """Wider and wider until an eighth of the documents is visited."""
        for beam in self.system.beams:
            ranking = self.system.rank(beam)
            recall_Q = self.questions.recall(ranking)
            documents, cost_Q = self.system.documents, ranking.scanned_Q + self.system.routing(beam)
            row = Row(beam, recall_Q, share(ranking.visited_Q, documents), share(cost_Q, documents))
            yield row
            if row.visited_Q.mean() >= LIBRARY_FARTHEST:
                return


Candidate = Leaves | Library


def columns(system: Candidate) -> dict[str, npt.NDArray[Any]]:
    """Arrays [p, q] of what every query finds and pays, beam after beam, and what an exact search finds [q]."""
    rows = list(system.walk())
    named = {name: np.stack([getattr(row, f"{name}_Q") for row in rows]) for name in ("recall", "visited", "cost")}
    return {**named, "beam": np.array([row.beam for row in rows]), "exact": system.exact(), "sizes": system.sizes}


def share(count_Q: Floats | Ints, documents: int) -> Floats:
    """Counts [q] as fractions of the corpus."""
    return np.asarray(count_Q / documents, dtype=np.float32)


def build(view: View, name: str, leaves: int, questions: Questions) -> Candidate:
    """A system by name: `tree_8x2` is a learned IVF of that shape."""
    if name in JOINT:
        return joint(view, name, leaves, questions)
    if name in ("hnsw", "scann"):
        return library(view, name, leaves, questions)
    if name in LISTS:
        return ivf(view, name, leaves, questions)
    spec = view.collection.spec
    router: dict[str, object] = {"branching": leaves}
    index: dict[str, object] = {}
    if name == "recipe":
        router, index = router | {"screen": 0}, {"spilled": 1.0}
    if name.startswith("tree_"):
        branching, height = (int(number) for number in name.removeprefix("tree_").split("x"))
        router = {"branching": branching, "height": height}
    own = {"router": spec.router.model_copy(update=router), "index": spec.index.model_copy(update=index)}
    spec = spec.model_copy(update=own)
    return routed(view, view.untaught(spec) if name == "untaught" else view.index(spec), questions)


def routed(view: View, index: Index, questions: Questions) -> Leaves:
    """A router over its leaves."""
    router, queries = index.router, Encoded.of(view.encode(questions.vector_QM))

    def probe(beam: int) -> Ints:
        return route_all(router, queries, beam)[0].numpy()

    def routing(beam: int) -> float:
        return router.multiply_adds(beam) / router.dimension

    return Leaves(Places(index.leaf_NR, router.n_leaves), view.relevance(questions), probe, routing)


def ivf(view: View, name: str, lists: int, questions: Questions) -> Candidate:
    """K-means lists, probed by nearest centroid; routing costs the centroids."""
    centroid_LM = view.centroids(lists)
    document_NM, count = view.vectors, 1 if LISTS[name] == 1 else min(CANDIDATES, lists)
    leaf_NC = nearest(document_NM, centroid_LM, count)[0]
    leaf_NR = placed(document_NM, leaf_NC, centroid_LM, None if count == 1 else "soar")
    order_QL: Ints = nearest(view.encode(questions.vector_QM), centroid_LM, lists)[0]
    return Leaves(
        Places(leaf_NR, lists), view.relevance(questions), lambda beam: order_QL[:, :beam], lambda _: float(lists)
    )


def placed(document_NM: Floats, leaf_NC: Ints, centroid_LM: Floats, second: Spill | None) -> Ints:
    """Leaves [n, 1 or 2] of documents: the first of their candidates [n, c], and a second where there is to be one."""
    if second is None:
        return leaf_NC[:, :1]
    second_N = leaf_NC[np.arange(len(leaf_NC)), second_leaves(document_NM, leaf_NC, centroid_LM, second)]
    return np.stack([leaf_NC[:, 0], second_N], axis=1)


def library(view: View, name: str, leaves: int, questions: Questions) -> Candidate:
    """A library that takes the whole index: HNSW, or ScaNN's tree."""
    query_QM, ids = view.encode(questions.vector_QM), pa.array(np.arange(len(view.vectors)))
    exact_Q = view.relevance(questions).exact()
    if name == "hnsw":
        graph = Hnsw(ids, None, view.vectors)
        steps, routing = efforts(len(ids)), 0.0
        system = System("", len(ids), steps, lambda effort: graph.rank(query_QM, effort, DEPTH), lambda _: routing)
    else:
        tree = ScannTree(ids, None, view.vectors, leaves)
        system = System(
            "", len(ids), beams(leaves), lambda beam: tree.rank(query_QM, beam, DEPTH), lambda _: float(leaves)
        )
    return Library(system, questions, np.zeros(0, np.int64), exact_Q)


def joint(view: View, name: str, leaves: int, questions: Questions) -> Leaves:
    """The paper's training with an encoder of its own."""
    trained = view.joint(leaves, JOINT[name])
    now = trained.snapshot()
    query_QM = encode(trained.tower.module, questions.vector_QM)
    leaf_N1 = now.leaves(now.document_NM, 1)

    def routing(beam: int) -> float:
        return float(now.router.multiply_adds(beam) / query_QM.shape[1])

    relevance = Relevance(questions, query_QM, now.document_NM)
    return Leaves(Places(leaf_N1, now.router.n_leaves), relevance, lambda beam: now.leaves(query_QM, beam), routing)
