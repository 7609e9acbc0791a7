"""The calibrate stage: what queries that training never saw tell of a built index.

How far they, or documents as queries, go in it to find what an exact search finds. How much BM25 should count in
hybrid searches, and the search's score beside that of a cross-encoder.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Ints
from rayhier.dataset.documents import document_texts
from rayhier.dataset.holdout import held_queries
from rayhier.dataset.queries import load_queries
from rayhier.dataset.ranking import Ranking, take
from rayhier.evaluate.exact_best import exact_best
from rayhier.evaluate.fusion import choose_weight
from rayhier.evaluate.reranking import choose_beside
from rayhier.model.adoption import Adoption
from rayhier.model.encoded import Encoded
from rayhier.model.router import FLOATS_AT_ONCE
from rayhier.search.request.calibration import Calibration
from rayhier.search.request.model import Model
from rayhier.spec import JobSpec
from rayhier.spec.index_size import MOST_LOSSLESS
from rayhier.spec.search import CHOOSING_DOCUMENTS, FEWEST_QUERIES, MOST_QUERIES
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap, key_of
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

    If queries choose the beam: how far dev queries go, at most 2,000, or documents if there are fewer than 20 of them.
    In an index of more than 200,000 rows this is only for a spec that names a recall.
    For hybrid searches, the weight of BM25. For re-ranking with a cross-encoder, the weight of the search's score.
    """
    dev = load_queries(corpus, vectors, "dev")
    opened, leaf_map = Model.open(model, spec), LeafMap.open(index.root, BUILT)
    counts: dict[str, float] = {}
    if spec.chooses_beam and (spec.search.beam != "auto" or leaf_map.manifest.rows <= MOST_LOSSLESS):
        if len(dev) >= FEWEST_QUERIES:
            some = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST_QUERIES)))
            ids, encoded = some.ids, opened.encode_stored(some.vector_QM, lambda: some.texts)
            best = exact_best(leaf_map, encoded.numpy, spec.search.k)
            made = Calibration(positions(opened, encoded, leaves_of(best)))
        else:
            ids, encoded, best = documents_as_queries(opened, leaf_map, spec.search.k)
            made = Calibration(positions(opened, encoded, leaves_of(best)), "documents")
        if made.position_QK.size:
            made.write(root, ids)
            counts |= {"queries": len(ids), "k": made.position_QK.shape[1]}
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


def documents_as_queries(model: Model, leaf_map: LeafMap, k: int) -> tuple[list[str], Encoded, Ranking]:
    """Search some documents, those first by a hash of the id, as queries: ids, vectors, best k others of each."""
    shards = [shard for shard in leaf_map.manifest.shards if shard.rows]
    ids = [name for shard in shards for name in set(leaf_map.read(shard, ["doc_id"])["doc_id"].to_pylist())]
    chosen, parts = pa.array(held_queries(ids, CHOOSING_DOCUMENTS), pa.string()), list[pa.Table]()
    for shard in shards:
        names = dict.fromkeys(["doc_id", leaf_map.key(shard), "rank", "vector", "title", "text"])
        rows = leaf_map.read(shard, list(names))
        parts.append(rows.filter(pc.and_(pc.equal(rows["rank"], 0), pc.is_in(rows["doc_id"], chosen))))
    table = pa.concat_tables(parts)
    encoded = Encoded.of(columns.matrix(table["vector"]))
    if model.router.reader is not None:
        encoded = model.encode(document_texts(table))
    best = exact_best(leaf_map, encoded.numpy, k + 1)
    own_Q = np.array(table[key_of(table.column_names)].to_pylist(), dtype=object)
    is_self_QK = (best.row_QK >= 0) & (np.array([*best.ids, None], object)[best.row_QK] == own_Q[:, None])
    place_QK = np.argsort(is_self_QK, axis=1, kind="stable")[:, :k]
    others = replace(best, score_QK=take(best.score_QK, place_QK), row_QK=take(best.row_QK, place_QK))
    return table["doc_id"].to_pylist(), encoded, others


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
