"""The systems of the comparison: each gives recall, documents visited and cost of every query, beam after beam."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from quality_collection import Taught, View, encoded
from quality_scan import DEPTH, Asked, Judged, Places, Row
from rayhier.cluster.kmeans import nearest
from rayhier.model.spill import CANDIDATES, second_leaves
from rayhier.evaluate.curve import System, beams
from rayhier.evaluate.systems.hnsw import Hnsw, efforts
from rayhier.evaluate.systems.scann import ScannTree
from rayhier.model.router import route_all
from rayhier.arrays import Ints
from rayhier.arrays import Floats

LISTS = {"faiss_ivf": 1, "faiss_ivf_same_encoder": 1, "faiss_ivf_spill": 2}
"""Lists of a document."""
JOINT = {"ehi_warm": "kmeans", "ehi_cold": "none"}
"""How the paper's own training begins."""
FARTHEST, LIBRARY_FARTHEST = 0.4, 0.125


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
