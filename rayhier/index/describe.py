"""Describe each node of an index's tree for people: size, keywords, representative documents.

Keywords distinguish a node from the rest of the corpus. A. Kilgarriff, "Simple maths for keywords" (2009): the score is
(f_node + n) / (f_rest + n). The frequency f is per million words, and n is constant. A word's score needs only
its own counts and the number of all words of each node. So a hash divides words among buckets, and one bucket is in
memory at a time.

Shapes: A counts (a word in a leaf or node), L leaves, K nodes, T levels, W words of a bucket.
"""

import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints
from rayhier.index.display import DisplayTree
from rayhier.storage import parquet, schemas
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import Location

KEYWORDS, DOCUMENTS = 12, 3
WORDS, BEST = "words", "best"
READ = ("doc_id", "leaf", "rank", "log_prob", "title", "text")
ROWS_A_BUCKET = 50_000
"""Approximate number of rows whose words make one bucket. The word counts of a bucket must fit in memory."""
BETWEEN = r"[^\pL\pN]+"
SHORTEST, LONGEST = 2, 40
FEWEST = 3
"""Least number of times that a keyword occurs in all documents. In a corpus of at most FEW words, once is enough."""
FEW = 10_000
SMOOTHING = 100.0
"""Number n of Kilgarriff's formula. Greater values prefer frequent words."""
COUNTED_ROWS = 5_000
WORD_ROWS = 16_384
"""Rows in a row group of counts. A row group of each shard lies in memory while buckets are read."""
SORTED = 1 << 20
"""Number of collected words above which only the best words of each node are kept, to save memory."""
COUNTS = pa.schema([("bucket", pa.int32()), ("leaf", pa.int32()), ("word", pa.string()), ("count", pa.int64())])
"""Number of times that a word occurs in a leaf. Rows of one word and leaf add up."""
SCORED = pa.schema([("node", pa.int32()), ("score", pa.float64()), ("word", pa.string())])


class DescribeShard:
    """An actor that counts the words of each leaf of a shard, and finds each leaf's best documents."""

    def __init__(self, leaf_map: LeafMap, scratch: Location) -> None:
        self.leaf_map, self.scratch = leaf_map, scratch

    def __call__(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"rows": write_part(self.leaf_map, int(item["shard"]), self.scratch)}


def write_part(leaf_map: LeafMap, number: int, scratch: Location) -> int:
    shard = leaf_map.manifest.shards[number]
    rows = leaf_map.read(shard, READ, verify=False)
    first = rows.filter(pc.equal(rows["rank"], 0))
    best = first.select(["leaf", "log_prob", "doc_id"])
    best = best_of(best, best["leaf"].to_numpy())
    counts = parquet.slices(counted(first, buckets(leaf_map.manifest.counts)), WORD_ROWS)
    for name, tables, schema in ((WORDS, counts, COUNTS), (BEST, [best], best.schema)):
        parquet.write(scratch, f"{name}-{number:05d}.parquet", tables, schema)
    return shard.documents


def buckets(size_L: Sequence[int] | Ints) -> int:
    return max(1, -(-int(sum(size_L)) // ROWS_A_BUCKET))


def describe(leaf_map: LeafMap, tree: DisplayTree) -> pa.Table:
    shards = len(leaf_map.manifest.shards)
    with tempfile.TemporaryDirectory(prefix="rayhier-") as folder:
        for number in range(shards):
            write_part(leaf_map, number, Path(folder))
        return table(tree, np.array(leaf_map.manifest.counts), Path(folder), shards)


def best_of(rows: pa.Table, node_N: Ints) -> pa.Table:
    """Keep the DOCUMENTS rows of each node with the highest log-probabilities. `node_N` are the rows' nodes."""
    order = np.lexsort((rows["doc_id"].combine_chunks(), -rows["log_prob"].to_numpy(), node_N))
    sorted_N = np.asarray(node_N)[order]
    chosen = order[np.arange(len(order)) - np.searchsorted(sorted_N, sorted_N) < DOCUMENTS]
    return rows.take(pa.array(chosen))


def table(tree: DisplayTree, size_L: Ints, scratch: Location, shards: int) -> pa.Table:
    """Make a row for each node of each level, top down, from the files that `write_part` wrote for each shard."""
    written = [[scratch / f"{name}-{number:05d}.parquet" for number in range(shards)] for name in (WORDS, BEST)]
    path_LT, best = tree.paths(), pa.concat_tables(map(parquet.read, written[1]))
    total_L = np.zeros(len(size_L))
    for path in written[0]:
        counts = parquet.read(path, ["leaf", "count"])
        total_L += np.bincount(counts["leaf"].to_numpy(), counts["count"].to_numpy(), len(size_L))
    ends = range(1, buckets(size_L) + 1)
    in_buckets = zip(*(parquet.divided(path, "bucket", ends) for path in written[0]), strict=True)
    words_of_levels = keywords(map(pa.concat_tables, in_buckets), path_LT, tree.summed(total_L), KEYWORDS)
    tables = []
    for level, (words, size_K) in enumerate(zip(words_of_levels, tree.summed(size_L), strict=True), start=1):
        node_N = path_LT[best["leaf"].to_numpy(), level - 1]
        ids_K: list[list[str]] = [[] for _ in size_K]
        chosen = best_of(best, node_N)
        for leaf, name in zip(chosen["leaf"].to_pylist(), chosen["doc_id"].to_pylist(), strict=True):
            ids_K[path_LT[leaf, level - 1]].append(name)
        columns = [
            pa.array(np.full(len(size_K), level), pa.int8()),
            pa.array(np.arange(len(size_K)), pa.int32()),
            pa.array(tree.parents[level - 1], pa.int32()),
            pa.array(size_K.astype(np.int64)),
            pa.array(words, pa.list_(pa.string())),
            pa.array(ids_K, pa.list_(pa.string())),
        ]
        tables.append(pa.table(columns, schema=schemas.LEAVES))
    return pa.concat_tables(tables)


def counted(table: pa.Table, buckets: int) -> pa.Table:
    """Count the words of documents (columns `leaf`, `title`, `text`). Returns columns COUNTS, sorted by bucket."""
    counts = pa.concat_tables([_count(table.slice(0, 0)), *map(_count, parquet.slices(table, COUNTED_ROWS))])
    word = counts["word"].combine_chunks().dictionary_encode()
    names = word.dictionary.to_pylist()
    bucket_W = np.array([zlib.crc32(name.encode()) % buckets for name in names], np.int32)
    bucket_A = bucket_W[word.indices.to_numpy()]
    columns = [bucket_A, counts["leaf"], counts["word"], counts["count_all"]]
    return pa.table(columns, schema=COUNTS).take(pa.array(np.argsort(bucket_A, kind="stable")))


def _count(table: pa.Table) -> pa.Table:
    texts = pc.binary_join_element_wise(table["title"], table["text"], " ").combine_chunks()
    split = pc.split_pattern_regex(pc.utf8_lower(texts), BETWEEN)
    words, row = pc.list_flatten(split), pc.list_parent_indices(split)
    length = pc.utf8_length(words)
    is_word = pc.and_(pc.greater_equal(length, SHORTEST), pc.less_equal(length, LONGEST))
    pairs = pa.table({"leaf": table["leaf"].combine_chunks().take(row.filter(is_word)), "word": words.filter(is_word)})
    return pairs.group_by(["leaf", "word"]).aggregate([([], "count_all")])


def keywords(buckets: Iterable[pa.Table], path_LT: Ints, totals: Sequence[Ints], most: int) -> list[list[list[str]]]:
    """Find at most `most` keywords of each node, level by level: highest score first, ties by word.

    `path_LT` are the nodes above each leaf. `totals` are the numbers [k] of words in the nodes of each level.
    """
    best, kept = [SCORED.empty_table() for _ in totals], [0] * len(totals)
    for table in buckets:
        word = table["word"].combine_chunks().dictionary_encode()
        leaf_A, word_A, count_A = table["leaf"].to_numpy(), word.indices.to_numpy(), table["count"].to_numpy()
        corpus_W = _summed(word_A, count_A, len(word.dictionary))
        frequent_A = corpus_W[word_A] >= (FEWEST if totals[0].sum() > FEW else 1)
        leaf_A, word_A, count_A = leaf_A[frequent_A], word_A[frequent_A], count_A[frequent_A]
        for level, total_K in enumerate(totals):
            key_A, place_A = np.unique(path_LT[leaf_A, level] << 32 | word_A, return_inverse=True)
            scored = _scored(key_A, _summed(place_A, count_A, len(key_A)), corpus_W, total_K, word.dictionary)
            best[level] = pa.concat_tables([best[level], scored])
            if len(best[level]) > max(2 * kept[level], SORTED):  # not after each bucket, to save time
                best[level] = _best(best[level], most)
                kept[level] = len(best[level])
    levels = []
    for table, total_K in zip(best, totals, strict=True):
        words: list[list[str]] = [[] for _ in total_K]
        chosen = _best(table, most)
        for node, name in zip(chosen["node"].to_pylist(), chosen["word"].to_pylist(), strict=True):
            words[node].append(name)
        levels.append(words)
    return levels


def _scored(key_A: Ints, count_A: Ints, whole_W: Ints, total_K: Ints, words: pa.Array) -> pa.Table:
    """Return words that are more frequent in a node than elsewhere. A key is node << 32 | word."""
    node_A, word_A = key_A >> 32, key_A & 0xFFFFFFFF
    score_A = kilgarriff(count_A, total_K[node_A], whole_W[word_A], int(total_K.sum()))
    is_key = score_A > 1
    return pa.table([node_A[is_key], score_A[is_key], words.take(pa.array(word_A[is_key]))], schema=SCORED)


def _best(scored: pa.Table, most: int) -> pa.Table:
    ordered = scored.sort_by([("node", "ascending"), ("score", "descending"), ("word", "ascending")])
    node_A = ordered["node"].to_numpy()
    return ordered.filter(pa.array(np.arange(len(node_A)) - np.searchsorted(node_A, node_A) < most))


def _summed(place_A: Ints, count_A: Ints, places: int) -> Ints:
    return np.bincount(place_A, weights=count_A, minlength=places).astype(np.int64)


def kilgarriff(count_A: Ints, total_A: Ints, whole_A: Ints, every: int) -> Floats:
    """Score words by (frequency in the node + n) / (frequency in the rest + n), per million words, n = SMOOTHING."""
    node_A = 1e6 * count_A / np.maximum(total_A, 1)
    rest_A = 1e6 * (whole_A - count_A) / np.maximum(every - total_A, 1)
    return np.asarray((node_A + SMOOTHING) / (rest_A + SMOOTHING))
