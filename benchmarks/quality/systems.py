"""Systems of the comparison: each gives recall, documents visited and cost of every query, for each beam."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.quality.view import DEPTH, Index, Places, Questions, Relevance, Row, View
from rayhier.arrays import Floats, Ints
from rayhier.cluster.neighbours import nearest
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.evaluate.baselines.hnsw import Hnsw, efforts
from rayhier.evaluate.baselines.scann import ScannTree
from rayhier.evaluate.curve import beams
from rayhier.model.encoded import Encoded
from rayhier.model.router import opened
from rayhier.model.spill import CANDIDATES, second_leaves
from rayhier.search.routing.coded_router import first_pass_before

LISTS = {"faiss_ivf": 1, "faiss_ivf_same_encoder": 1, "faiss_ivf_spill": 2}
"""Lists of a document, by name of the system."""
FARTHEST, LIBRARY_FARTHEST = 0.4, 0.125


@dataclass(frozen=True)
class Candidate:
    """A system: what it finds, visits and costs at each beam, until a share of the documents is visited."""

    beams: Iterable[int]
    measure: Callable[[int], Row]
    exact_Q: Floats
    """R@100 of a scan of everything with its encoder."""
    sizes: Ints
    """Rows of each leaf; none where there are no leaves."""
    farthest: float

    def walk(self) -> Iterator[Row]:
        """Beam after beam."""
        for beam in self.beams:
            row = self.measure(beam)
            yield row
            if row.visited_Q.mean() >= self.farthest:
                return


def in_leaves(
    places: Places, relevance: Relevance, probe: Callable[[int], Ints], routing: Callable[[int], float]
) -> Candidate:
    """Documents in leaves, and the queries that visit them.

    `probe` names the leaves [q, beam] of a beam, `routing` its cost a query, in dot products of the vectors' dimension.
    """
    documents = len(places.leaf_NR)

    def measure(beam: int) -> Row:
        probed_QL = places.probed(probe(beam))
        visited_Q, scanned_Q = places.counts(probed_QL)
        recall_Q = relevance.within(probed_QL, places.leaf_NR)
        return Row(beam, recall_Q, share(visited_Q, documents), share(scanned_Q + routing(beam), documents))

    return Candidate(beams(places.n_leaves), measure, relevance.exact(), places.sizes, FARTHEST)


def columns(system: Candidate) -> dict[str, npt.NDArray[Any]]:
    """Arrays [p, q] of what every query finds and pays, beam after beam, and what an exact search finds [q]."""
    rows = list(system.walk())
    named = {name: np.stack([getattr(row, f"{name}_Q") for row in rows]) for name in ("recall", "visited", "cost")}
    return {**named, "beam": np.array([row.beam for row in rows]), "exact": system.exact_Q, "sizes": system.sizes}


def share(count_Q: Floats | Ints, documents: int) -> Floats:
    """Counts [q] as fractions of the corpus."""
    return np.asarray(count_Q / documents, dtype=np.float32)


def build(view: View, name: str, leaves: int, questions: Questions) -> Candidate:
    """A system by name."""
    if name in ("hnsw", "scann"):
        return library(view, name, leaves, questions)
    if name in LISTS:
        return ivf(view, name, leaves, questions)
    spec = view.collection.spec
    spec = spec.model_copy(update={"router": spec.router.model_copy(update={"branching": leaves})})
    index_of = view.untaught if name == "untaught" else view.index
    return routed(view, index_of(spec), questions)


def routed(view: View, index: Index, questions: Questions, *, coded: bool = True) -> Candidate:
    """A router over its leaves, `coded` with its first pass."""
    trained = opened(index.router)
    router = first_pass_before(trained) if coded else trained
    queries = Encoded(view.encode(questions.vector_QM))
    return in_leaves(
        Places(index.leaf_NR, router.n_leaves),
        view.relevance(questions),
        lambda beam: router.choose(queries, beam),
        lambda beam: router.multiply_adds(beam) / index.router.dimension,
    )


def ivf(view: View, name: str, lists: int, questions: Questions) -> Candidate:
    """K-means lists, probed by nearest centroid; routing costs the centroids."""
    centroid_LM = view.centroids(lists)
    document_NM, count = view.vectors, 1 if LISTS[name] == 1 else min(CANDIDATES, lists)
    leaf_NC = nearest(document_NM, centroid_LM, count)[0]
    places = Places(placed(document_NM, leaf_NC, centroid_LM, two=count > 1), lists)
    order_QL: Ints = nearest(view.encode(questions.vector_QM), centroid_LM, lists)[0]
    return in_leaves(places, view.relevance(questions), lambda beam: order_QL[:, :beam], lambda _: float(lists))


def placed(document_NM: Floats, leaf_NC: Ints, centroid_LM: Floats, *, two: bool) -> Ints:
    """Leaves [n, 1 or 2] of documents: the first of their candidates [n, c], and a second where there is to be one."""
    if not two:
        return leaf_NC[:, :1]
    second_N = leaf_NC[np.arange(len(leaf_NC)), second_leaves(document_NM, leaf_NC, centroid_LM)]
    return np.stack([leaf_NC[:, 0], second_N], axis=1)


def library(view: View, name: str, leaves: int, questions: Questions) -> Candidate:
    """A library that takes the whole index: HNSW, or ScaNN's tree, until an eighth of the documents is visited."""
    query_QM, documents = view.encode(questions.vector_QM), len(view.vectors)
    ids = pa.array(np.arange(documents))
    own = BaselineDocuments(ids, ids, view.vectors)
    graph = Hnsw(own) if name == "hnsw" else ScannTree(own, leaves)
    steps, routing = (efforts(documents), 0.0) if name == "hnsw" else (beams(leaves), float(leaves))

    def measure(beam: int) -> Row:
        ranking = graph.rank(query_QM, beam, DEPTH)
        cost_Q = share(ranking.scanned_Q + routing, documents)
        return Row(beam, questions.recall(ranking), share(ranking.visited_Q, documents), cost_Q)

    exact_Q = view.relevance(questions).exact()
    return Candidate(steps, measure, exact_Q, np.zeros(0, np.int64), LIBRARY_FARTHEST)
