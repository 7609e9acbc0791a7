"""Calibrate a built index with dev queries, which training did not read.

The queries' answers choose how many leaves a search visits, and the weight of BM25 in hybrid searches. The answers also
choose the weight of the search's score in re-ranking, and if int8 is precise enough to encode queries.

Shapes: Q queries, K documents, W weights.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.documents import document_texts, result_numbers
from rayhier.dataset.holdout import held_queries, load_judged
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import ID, Ranking, compact, merge, split, take
from rayhier.embed.onnx import FOLDER, MODELS, OnnxEncoder
from rayhier.model.adoption import Adoption
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import FLOATS_AT_ONCE
from rayhier.progress import Bar
from rayhier.scores.scorer import open_scorer
from rayhier.search.rerank import RerankWeight
from rayhier.search.routing.chosen_beam import Calibration
from rayhier.search.routing.query_precision import QueryPrecision
from rayhier.search.routing.routes import Model
from rayhier.search.segment.exact import exact_rows
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.segment.segment import VECTOR
from rayhier.search.snapshot import Snapshot
from rayhier.search.words.fusion_weight import WEIGHTS, FusionWeight, best
from rayhier.search.words.hybrid import WordScan, fused
from rayhier.spec import JobSpec
from rayhier.spec.cross_encoder import CHOSEN_DEPTH
from rayhier.spec.index import MOST_SMALL
from rayhier.spec.search import (
    CACHE_BYTES,
    CHOOSING_DOCUMENTS,
    FEWEST_QUERIES,
    FUSED,
    UNTAUGHT_WEIGHT,
    HybridSpec,
)
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap, key_of
from rayhier.storage.model_layout import query_folder
from rayhier.storage.paths import Location
from rayhier.storage.shard import Shard
from rayhier.threads import get_threads

MEASURE, RESULTS = "nDCG@10", 10
MOST_RERANKED, MOST_ENCODED = 200, 300
"""Largest number of dev queries that choose the weight of the search's score, and most that choose the number
format."""
BESIDES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
"""Weights of the search's score in re-ranking to choose from."""


def calibrate(
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    model: Artifact,
    index: Artifact,
    root: Location,
    cross_encoder: Artifact | None = None,
) -> dict[str, float]:
    """Write the choices for the spec's searches below `root`, and return counts and weights.

    At most 1,000 dev queries choose a beam. If there are fewer than 20 dev queries, documents serve as queries. In an
    index of more than 200,000 rows, queries choose a beam only if the spec names a recall.
    """
    dev = load_judged(corpus, vectors)
    opened, leaf_map = Model.open(model, spec), LeafMap.open(index.root, BUILT)
    counts: dict[str, float] = {}
    if spec.chooses_beam and (spec.search.beam != "auto" or leaf_map.manifest.rows <= MOST_SMALL):
        if len(dev) >= FEWEST_QUERIES:
            ids, encoded = dev.ids, opened.encode_stored(dev.vector_QM, lambda: dev.texts, "query")
            best = exact_best(leaf_map, encoded.numpy, spec.search.k)
            made = Calibration(positions(opened, encoded, leaves_of(best)))
        else:
            ids, encoded, best = documents_as_queries(opened, leaf_map, spec.search.k)
            made = Calibration(positions(opened, encoded, leaves_of(best)), "documents")
        if made.position_QK.size:
            made.write(root, ids)
            counts |= {"queries": len(ids), "k": made.position_QK.shape[1]}
    if spec.chooses_precision:
        precision = choose_precision(dev, opened, model.local(query_folder(spec.encoder)), leaf_map)
        if precision is not None:
            precision.write(root)
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


def exact_best(leaf_map: LeafMap, query_QM: Floats, k: int) -> Ranking:
    """Rank the best k results of each query [q, m] with columns `id` and `leaves`, one shard in memory at a time."""
    best = Ranking.none(len(query_QM))
    with Bar("exact search", leaf_map.manifest.documents, "documents") as bar:
        for shard in leaf_map.manifest.shards:
            best = merge([best, _best_of(leaf_map, shard, query_QM, k)], k)
            few = compact(best.score_QK, best.row_QK, best.source)
            best = Ranking(*few, best.visited_Q, best.scanned_Q, best.leaves_Q)
            bar.advance(shard.documents)
    return best


def _best_of(leaf_map: LeafMap, shard: Shard, query_QM: Floats, k: int) -> Ranking:
    key = leaf_map.key(shard)
    table = leaf_map.read(shard, list(dict.fromkeys(["doc_id", key, "rank", "leaves", "vector"])))
    table = table.filter(pc.equal(table["rank"], 0))
    ids, results = (table[name].combine_chunks() for name in ("doc_id", key))
    best = exact_rows(query_QM, columns.matrix(table["vector"]), result_numbers(ids, results), k)
    nothing_Q = np.zeros(len(query_QM), dtype=np.int64)
    return Ranking(*best, pa.table({ID: results, "leaves": table["leaves"]}), nothing_Q, nothing_Q, nothing_Q)


def documents_as_queries(model: Model, leaf_map: LeafMap, k: int) -> tuple[list[str], Encoded, Ranking]:
    """Search documents with the smallest hashes of ids as queries. Returns ids, vectors, and best other documents."""
    shards = [shard for shard in leaf_map.manifest.shards if shard.rows]
    ids = [name for shard in shards for name in set(leaf_map.read(shard, ["doc_id"])["doc_id"].to_pylist())]
    chosen, parts = pa.array(held_queries(ids, CHOOSING_DOCUMENTS), pa.string()), list[pa.Table]()
    for shard in shards:
        names = dict.fromkeys(["doc_id", leaf_map.key(shard), "rank", "vector", "title", "text"])
        rows = leaf_map.read(shard, list(names))
        parts.append(rows.filter(pc.and_(pc.equal(rows["rank"], 0), pc.is_in(rows["doc_id"], chosen))))
    table = pa.concat_tables(parts)
    encoded = Encoded(columns.matrix(table["vector"]))
    if model.router.reader is not None:
        encoded = model.encode(document_texts(table))
    best = exact_best(leaf_map, encoded.numpy, k + 1)
    own_Q = np.array(table[key_of(table.column_names)].to_pylist(), dtype=object)
    is_self_QK = (best.row_QK >= 0) & (np.array([*best.ids, None], object)[best.row_QK] == own_Q[:, None])
    place_QK = np.argsort(is_self_QK, axis=1, kind="stable")[:, :k]
    others = replace(best, score_QK=take(best.score_QK, place_QK), row_QK=take(best.row_QK, place_QK))
    return table["doc_id"].to_pylist(), encoded, others


def leaves_of(best: Ranking) -> Ints:
    """Return the leaves [q, k, r] of the documents of a ranking. Without a second leaf, the first leaf is repeated."""
    leaves = best.documents["leaves"].combine_chunks()
    first_N = pc.list_element(leaves, 0).to_numpy()
    last_N = leaves.flatten().to_numpy()[leaves.offsets.to_numpy()[1:] - 1]
    row_QK = best.row_QK[:, (best.row_QK >= 0).all(axis=0)]  # without results beyond the last document
    return np.stack([first_N, last_N], axis=1).astype(np.int64)[row_QK]


def positions(model: Model, encoded: Encoded, leaf_QKR: Ints) -> Ints:
    """Compute the position [q, k], from 1, of the first leaf among a document's leaves [q, k, r] in a query's order.

    Routers with codes or inner nodes may miss a leaf even if the beam is larger than the leaf's position. So a query is
    routed to 1, 2, 4, … leaves. A leaf that a beam misses gets a position after this beam.
    """
    leaves, parts = model.router.n_leaves, []
    widths = [*(1 << step for step in range((leaves - 1).bit_length())), leaves]
    rows = max(1, FLOATS_AT_ONCE // leaves)
    for begin in range(0, len(encoded), rows):
        some = encoded[begin : begin + rows]
        position_QL = np.zeros((len(some), leaves), np.int64)
        for width in widths:
            among_QL = np.full_like(position_QL, width + 1)
            np.put_along_axis(among_QL, model.route(some, width), np.arange(1, width + 1)[None], axis=1)
            position_QL = np.maximum(position_QL, among_QL)
        leaf_QX = leaf_QKR[begin : begin + rows].reshape(len(some), -1)
        found_QX = np.take_along_axis(position_QL, leaf_QX, axis=1)
        parts.append(found_QX.reshape(len(some), *leaf_QKR.shape[1:]).min(axis=2))
    return np.concatenate(parts)


def choose_precision(dev: Queries, model: Model, folder: Path, leaf_map: LeafMap) -> QueryPrecision | None:
    """Measure exact search by dev queries in float32 and int8. None with under 20 queries, or without int8."""
    if len(dev) < FEWEST_QUERIES or model.router.reader is not None or not (folder / FOLDER / MODELS["int8"]).is_file():
        return None
    dev = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST_ENCODED)))
    vectors = [
        model.query_encoder.encode(dev.texts, "query"),
        OnnxEncoder(folder, model.spec.encoder, get_threads(), "int8").encode(dev.texts, "query"),
    ]
    found = split(exact_best(leaf_map, np.concatenate(vectors), RESULTS), [len(dev), len(dev)])
    judge = Judge(dev, [MEASURE])
    by_float32, by_int8 = (round(judge.mean(ranking)[MEASURE], 6) for ranking in found)
    return QueryPrecision(queries=len(dev), measure=MEASURE, measured={"float32": by_float32, "int8": by_int8})


def choose_weight(
    spec: JobSpec, dev: Queries, model: Model, leaf_map: LeafMap, adoption: Adoption | None = None
) -> FusionWeight:
    """Choose the weight of BM25 by the scores of exact search for dev queries, which have base vectors.

    Few dev queries are not enough. So train queries that decided on the `adoption`, in folds, choose too. Titles and
    sentences of documents cannot replace dev queries here (docs/results/LOG.md).
    """
    if not dev.answered:
        return FusionWeight(weight=UNTAUGHT_WEIGHT, queries=0, measure=MEASURE, measured={})
    leaves = LeafScan.mapped(leaf_map, cache_bytes=CACHE_BYTES)
    query_QM = model.encode_stored(dev.vector_QM, lambda: dev.texts, "query").numpy
    dense = exact_best(leaf_map, query_QM, FUSED)
    dense = replace(dense, source=dense.documents.select([ID]))
    lexical = WordScan.mapped(leaf_map, leaves).scan(dev.texts, query_QM, FUSED, needs="ids")
    judge, cosines = Judge(dev, [MEASURE]), spec.encoder.similarity == "cosine"

    def measured(weight: float) -> Values:
        ranking = fused(dense, [lexical], RESULTS, HybridSpec(weight=weight), FUSED, cosines=cosines)
        return judge.values(ranking)[MEASURE]

    value_WQ = np.stack([measured(weight) for weight in WEIGHTS])
    folded, sum_W = _in_folds(adoption)
    mean_W = (value_WQ.sum(axis=1) + sum_W) / (len(dev) + folded)
    means = {f"{weight:g}": round(float(mean), 6) for weight, mean in zip(WEIGHTS, mean_W, strict=True)}
    chosen = best(value_WQ, sum_W)
    return FusionWeight(weight=chosen, queries=len(dev), folded=folded, measure=MEASURE, measured=means)


def _in_folds(adoption: Adoption | None) -> tuple[int, Values]:
    """Return how many train queries in folds decided on the encoder, and their measures' sum for each weight [w]."""
    none_W = np.zeros(len(WEIGHTS))
    if adoption is None or adoption.source != "train queries in folds" or not adoption.measured:
        return 0, none_W
    return adoption.queries, adoption.queries * np.array([adoption.measured[f"{weight:g}"] for weight in WEIGHTS])


def choose_beside(
    spec: JobSpec, dev: Queries, model: Artifact, leaf_map: LeafMap, cross_encoder: Artifact
) -> RerankWeight | None:
    """Choose the weight of the search's score in re-ranking, after the spec's mode and BM25's weight.

    The cross-encoder reads each dev query's best documents in the leaves that the query visits. If dev queries choose
    the beam, these are the leaves of an automatic beam. As in searches, the weighted scores are the search's, or inner
    products of vectors. None if there are no dev queries, or nothing is found for them.
    """
    rerank, reads = spec.search.reranking, spec.cross_encoder
    if rerank is None or reads is None or not dev.answered:
        return None
    dev = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST_RERANKED)))
    opened = Model.open(model, spec)
    searcher = Snapshot(spec, leaf_map, opened.load())
    depth, texts = min(CHOSEN_DEPTH, rerank.budget), list(dev.texts)
    request = replace(searcher.rules.request(texts, depth), pool=None, needs="vectors")
    ranking = searcher.retrieve(request).ranking
    if not ranking.documents.num_rows:
        return None
    query_X, place_X = np.nonzero(ranking.row_QK >= 0)
    bodies = document_texts(ranking.documents)
    score_X = open_scorer(cross_encoder, reads)(
        [texts[query] for query in query_X.tolist()], [bodies[row] for row in ranking.row_QK[query_X, place_X].tolist()]
    )
    score_QK = np.full(ranking.row_QK.shape, -np.inf)
    score_QK[query_X, place_X] = score_X
    base_QK = ranking.score_QK
    if not spec.search.adds_scores(request.mode):
        query_QM = opened.encode_stored(dev.vector_QM, lambda: dev.texts, "query").numpy
        vector_NM = columns.matrix(ranking.documents[VECTOR])
        base_QK = np.where(ranking.row_QK < 0, -np.inf, np.einsum("qkm,qm->qk", vector_NM[ranking.row_QK], query_QM))
    return best_beside(Judge(dev, [MEASURE]), ranking, score_QK, base_QK)


def best_beside(judge: Judge, ranking: Ranking, score_QK: Values, base_QK: Floats) -> RerankWeight:
    """Choose the weight of base scores [q, k] that are added to cross-encoder scores [q, k]. Of equals, the least."""
    measured = {weight: judge.mean(reordered(ranking, score_QK, base_QK, weight))[MEASURE] for weight in BESIDES}
    return RerankWeight(
        beside=max(BESIDES, key=lambda weight: (measured[weight], -weight)),
        slope=mean_slope(base_QK, score_QK),
        queries=len(judge.query_ids),
        depth=score_QK.shape[1],
        measure=MEASURE,
        searched=round(judge.mean(ranking)[MEASURE], 6),
        measured={f"{weight:g}": round(value, 6) for weight, value in measured.items()},
    )


def reordered(ranking: Ranking, score_QK: Values, base_QK: Floats, beside: float) -> Ranking:
    """Order a ranking by its scores [q, k] plus base scores [q, k] with a weight. -inf means no score."""
    added_QK = np.where(np.isfinite(score_QK), base_QK, 0.0)
    total_QK = (score_QK + beside * added_QK).astype(np.float32)
    order_QK = np.argsort(-total_QK, axis=1, kind="stable")
    return replace(ranking, score_QK=take(total_QK, order_QK), row_QK=take(ranking.row_QK, order_QK))


def mean_slope(base_QK: Floats, score_QK: Values) -> float:
    """Compute the mean over queries of the least-squares slope of scores [q, k] on base scores [q, k], at least 0.

    A query with equal base scores has slope 0.

    >>> mean_slope(np.array([[0.0, 1.0], [2.0, 2.0]]), np.array([[1.0, 4.0], [0.0, 5.0]]))
    1.5
    """
    slopes = []
    for base_K, score_K in zip(base_QK, score_QK, strict=True):
        there_K = np.isfinite(score_K)
        base_X = base_K[there_K] - base_K[there_K].mean() if there_K.any() else np.zeros(1)
        spread = float((base_X**2).sum())
        slopes.append(float((base_X * score_K[there_K]).sum()) / spread if spread > 0 else 0.0)
    return max(0.0, float(np.mean(slopes))) if slopes else 0.0
