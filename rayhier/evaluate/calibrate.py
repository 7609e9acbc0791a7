"""The calibrate stage: what queries that training never saw tell of a built index.

How far they must go in it to find what an exact search finds, how much BM25 should count in hybrid searches, and how
much the search's score beside that of a cross-encoder.
"""

import numpy as np
import pyarrow.compute as pc
import torch

from rayhier.arrays import Floats, Ints
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
from rayhier.search.promised_beam import PromisedBeam
from rayhier.spec import JobSpec
from rayhier.spec.search import MOST_QUERIES
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

    For a promise, floors of the dev queries, at most 2,000, those first by a hash of the id; for hybrid searches, the
    weight of BM25; for re-ranking with a cross-encoder, the weight of the search's score.
    """
    dev = load_queries(corpus, vectors, "dev")
    opened, leaf_map = Model.open(model, spec), LeafMap.open(index.root, BUILT)
    counts: dict[str, float] = {}
    if spec.search.promise is not None:
        promised = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST_QUERIES)))
        encoded = opened.encode_stored(promised.vector_QM, lambda: promised.texts)
        leaf_QKR = leaves_of(exact_best(leaf_map, encoded.numpy, spec.search.k))
        floor_QK = largest_floors(opened.promised_beam(), encoded, leaf_QKR)
        Calibration(floor_QK).write(root, promised.ids)
        counts |= {"queries": len(promised), "k": floor_QK.shape[1]}
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
    return np.stack([first_N, last_N], axis=1).astype(np.int64)[best.row_QK]


@torch.inference_mode()
def largest_floors(router: PromisedBeam, encoded: Encoded, leaf_QKR: Ints) -> Floats:
    """Compute the largest floors [q, k] with which queries visit one of the leaves [q, k, r] of a document."""
    parts, rows = [], max(1, FLOATS_AT_ONCE // router.n_leaves)
    for begin in range(0, len(encoded), rows):
        floor_QL = router.floors(encoded[begin : begin + rows].to(router.device)).cpu().numpy()
        leaf_QX = leaf_QKR[begin : begin + rows].reshape(len(floor_QL), -1)
        found_QKR = np.take_along_axis(floor_QL, leaf_QX, axis=1).reshape(len(floor_QL), *leaf_QKR.shape[1:])
        parts.append(found_QKR.max(axis=2))
    return np.concatenate(parts)
