"""The calibrate stage: what queries that training never saw tell of a built index.

How far they go in it to find what an exact search finds, how much BM25 should count in hybrid searches, and how much
the search's score beside that of a cross-encoder.
"""

import numpy as np
import pyarrow.compute as pc

from rayhier.arrays import Ints
from rayhier.dataset.holdout import held_queries
from rayhier.dataset.queries import load_queries
from rayhier.dataset.ranking import Ranking
from rayhier.evaluate.exact_best import exact_best
from rayhier.evaluate.fusion import choose_weight
from rayhier.evaluate.reranking import choose_beside
from rayhier.model.adoption import Adoption
from rayhier.model.encoded import Encoded
from rayhier.model.router import FLOATS_AT_ONCE
from rayhier.search.calibration import Calibration
from rayhier.search.model import Model
from rayhier.spec import JobSpec
from rayhier.spec.search import FEWEST_QUERIES, MOST_QUERIES
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap
from rayhier.storage.paths import Location


def calibrate(
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    model: Artifact,
    index: Artifact,
    root: Location,
    cross_encoder: Artifact | None = None,
) -> dict[str, float]:
    """Write what queries that training never saw tell of a built index below `root`; returns counts and weights.

    If dev queries choose the beam and are 20 or more: how far they go, at most 2,000, those first by a hash of the id.
    For hybrid searches, the weight of BM25. For re-ranking with a cross-encoder, the weight of the search's score.
    """
    dev = load_queries(corpus, vectors, "dev")
    opened, leaf_map = Model.open(model, spec), LeafMap.open(index.root, BUILT)
    counts: dict[str, float] = {}
    if spec.chooses_beam and len(dev) >= FEWEST_QUERIES:
        some = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST_QUERIES)))
        encoded = opened.encode_stored(some.vector_QM, lambda: some.texts)
        position_QK = positions(opened, encoded, leaves_of(exact_best(leaf_map, encoded.numpy, spec.search.k)))
        Calibration(position_QK).write(root, some.ids)
        counts |= {"queries": len(some), "k": position_QK.shape[1]}
    if spec.chooses_weight:
        chosen = choose_weight(spec, dev, opened, leaf_map, Adoption.open(model))
        chosen.write(root)
        counts |= {"weight": chosen.weight, "weighed": chosen.queries, "folded": chosen.folded}
    if spec.chooses_beside and cross_encoder is not None:
        settled = spec.settled(counts.get("weight"))
        beside = choose_beside(settled, dev, model, leaf_map, cross_encoder)
        if beside is not None:
            beside.write(root)
            counts |= {"beside": beside.beside, "reranked": beside.queries, "searched": beside.searched}
            counts["read"] = beside.measured[f"{beside.beside:g}"]
    return counts


def leaves_of(best: Ranking) -> Ints:
    """Return the leaves [q, k, r] of the documents of a ranking; the first again where there is no second."""
    leaves = best.documents["leaves"].combine_chunks()
    first_N = pc.list_element(leaves, 0).to_numpy()
    last_N = leaves.flatten().to_numpy()[leaves.offsets.to_numpy()[1:] - 1]
    row_QK = best.row_QK[:, (best.row_QK >= 0).all(axis=0)]  # without results beyond the last document
    return np.stack([first_N, last_N], axis=1).astype(np.int64)[row_QK]


def positions(model: Model, encoded: Encoded, leaf_QKR: Ints) -> Ints:
    """Compute at which position [q, k], from 1, a query's order of leaves first has a leaf [q, k, r] of a document.

    A router that compares codes first, or excludes leaves by inner nodes, may miss a leaf with a larger beam than its
    position. So a query is routed to 1, 2, 4, … leaves, and a leaf that is not among so many comes later.
    """
    leaves, parts = model.router.n_leaves, []
    widths = [*(1 << step for step in range((leaves - 1).bit_length())), leaves]
    rows = max(1, FLOATS_AT_ONCE // leaves)
    for begin in range(0, len(encoded), rows):
        some = encoded[begin : begin + rows]
        position_QL = np.zeros((len(some), leaves), np.int64)
        for width in widths:
            among_QL = np.full_like(position_QL, width + 1)
            np.put_along_axis(among_QL, model.route(some, width)[0], np.arange(1, width + 1)[None], axis=1)
            position_QL = np.maximum(position_QL, among_QL)
        leaf_QX = leaf_QKR[begin : begin + rows].reshape(len(some), -1)
        found_QX = np.take_along_axis(position_QL, leaf_QX, axis=1)
        parts.append(found_QX.reshape(len(some), *leaf_QKR.shape[1:]).min(axis=2))
    return np.concatenate(parts)
