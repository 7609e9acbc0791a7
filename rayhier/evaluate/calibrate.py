"""The calibrate stage: how far dev queries must go in the built index to find what an exact search finds."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from rayhier.arrays import Floats, Ints
from rayhier.dataset.documents import result_numbers
from rayhier.dataset.holdout import held_queries
from rayhier.dataset.queries import load_queries
from rayhier.dataset.ranking import ID, Ranking, compact, merge
from rayhier.model.encoded import Encoded
from rayhier.model.router import FLOATS_AT_ONCE
from rayhier.progress import Bar
from rayhier.search.calibration import Calibration
from rayhier.search.exact import exact_rows
from rayhier.search.model import Model
from rayhier.search.promised_beam import PromisedBeam
from rayhier.spec import JobSpec
from rayhier.spec.search import MOST_QUERIES
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap, Shard
from rayhier.storage.paths import Location


def calibrate(
    spec: JobSpec, corpus: Artifact, vectors: Artifact, model: Artifact, index: Artifact, root: Location
) -> dict[str, int]:
    """Write the calibration of a built index below `root`; returns its counts.

    The queries are the dev queries, at most 2,000, those first by a hash of the id.
    """
    dev = load_queries(corpus, vectors, "dev")
    dev = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST_QUERIES)))
    opened, leaf_map = Model.open(model, spec), LeafMap.open(index.root, BUILT)
    encoded = opened.encode_stored(dev.vector_QM, lambda: dev.texts)
    leaf_QKR = leaves_of_best(leaf_map, encoded.numpy, spec.search.k)
    floor_QK = largest_floors(opened.promised_beam(), encoded, leaf_QKR)
    Calibration(floor_QK).write(root, dev.ids)
    return {"queries": len(dev), "k": floor_QK.shape[1]}


def leaves_of_best(leaf_map: LeafMap, query_QM: Floats, k: int) -> Ints:
    """Find the leaves [q, k, r] of each query's exact best k documents; the first again where there is no second.

    Of a document that is cut into passages, those of its best passage. Shards are read one after the other.
    """
    best = Ranking.none(len(query_QM))
    with Bar("calibrate", leaf_map.manifest.documents, "documents") as bar:
        for shard in leaf_map.manifest.shards:
            best = _compacted(merge([best, _best_of(leaf_map, shard, query_QM, k)], k))
            bar.advance(shard.documents)
    leaves = best.documents["leaves"].combine_chunks()
    first_N = pc.list_element(leaves, 0).to_numpy()
    last_N = leaves.flatten().to_numpy()[leaves.offsets.to_numpy()[1:] - 1]
    return np.stack([first_N, last_N], axis=1).astype(np.int64)[best.row_QK]


def _best_of(leaf_map: LeafMap, shard: Shard, query_QM: Floats, k: int) -> Ranking:
    """Rank the best k results of each query among the documents whose first leaf is in a shard, with their leaves."""
    key = leaf_map.key(shard)
    table = leaf_map.read(shard, list(dict.fromkeys(["doc_id", key, "rank", "leaves", "vector"])))
    table = table.filter(pc.equal(table["rank"], 0))
    ids, results = (table[name].combine_chunks() for name in ("doc_id", key))
    best = exact_rows(query_QM, columns.matrix(table["vector"]), result_numbers(ids, results), k)
    nothing_Q = np.zeros(len(query_QM), dtype=np.int64)
    return Ranking(*best, pa.table({ID: results, "leaves": table["leaves"]}), nothing_Q, nothing_Q, nothing_Q)


def _compacted(ranking: Ranking) -> Ranking:
    documents = compact(ranking.score_QK, ranking.row_QK, ranking.documents)
    return Ranking(*documents, ranking.visited_Q, ranking.scanned_Q, ranking.leaves_Q)


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
