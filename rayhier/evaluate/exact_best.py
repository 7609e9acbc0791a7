"""Exact search over the shards of a leaf map, one after the other."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats
from rayhier.dataset.documents import result_numbers
from rayhier.dataset.ranking import ID, Ranking, compact, merge
from rayhier.progress import Bar
from rayhier.search.segment.exact import exact_rows
from rayhier.storage import columns
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.shard import Shard


def exact_best(leaf_map: LeafMap, query_QM: Floats, k: int) -> Ranking:
    """Rank the best k results of each query [q, m] with columns `id` and `leaves`, one shard in memory at a time."""
    best = Ranking.none(len(query_QM))
    with Bar("exact search", leaf_map.manifest.documents, "documents") as bar:
        for shard in leaf_map.manifest.shards:
            best = _compacted(merge([best, _best_of(leaf_map, shard, query_QM, k)], k))
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


def _compacted(ranking: Ranking) -> Ranking:
    documents = compact(ranking.score_QK, ranking.row_QK, ranking.documents)
    return Ranking(*documents, ranking.visited_Q, ranking.scanned_Q, ranking.leaves_Q)
