"""One process's share of a corpus: its documents' vectors, and the lists that an index or a control puts them into.

No Ray here: parts in one process answer as parts in many do, and `found.merge` makes one answer of theirs.
"""

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import pyarrow as pa

from rayhier.cluster.kmeans import nearest
from rayhier.cluster.library import faiss
from rayhier.cluster.spill import CANDIDATES, second_leaves
from rayhier.evaluate.found import Found, Names, Ranking, mean_leaves
from rayhier.evaluate.held import Held, hash_ids
from rayhier.search.lists import Copies, Ints, LeafLists, once
from rayhier.search.loaded import LoadedMap
from rayhier.storage import columns, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.columns import Floats
from rayhier.storage.leaf_map import BUILT, LeafMap
from rayhier.storage.paths import locate

ROUTER = "router"
"""Name of the lists that a leaf map came with."""


class Part:
    """Some documents (passages, where the corpus has them): ids and vectors [n, m], and lists by name."""

    def __init__(self, doc_ids: pa.Array, result_ids: pa.Array, vector_NM: Floats) -> None:
        self.doc_ids, self.result_ids, self.vector_NM = doc_ids, result_ids, vector_NM
        self.result_N = results(doc_ids, result_ids)
        self._lists: dict[str, tuple[LeafLists, pa.Array]] = {}

    @classmethod
    def of_vectors(cls, corpus: str, vectors: str, names: Sequence[str]) -> Self:
        """The base vectors of some files of a vectors artifact, beside the same files of its corpus."""
        texts, made = Artifact.open(locate(corpus)), Artifact.open(locate(vectors))
        table = pa.concat_tables([read_vectors(texts, made, name) for name in names])
        ids, results = (table[name].combine_chunks() for name in ("doc_id", "result_id"))
        return cls(ids, results, columns.matrix(table["vector"]))

    @classmethod
    def of_shards(cls, index: str, shards: Sequence[int]) -> Self:
        """The documents and lists of some shards of a published leaf map, by number."""
        leaf_map = LeafMap.open(Artifact.open(locate(index)).root, BUILT)
        loaded = LoadedMap.read(leaf_map, [leaf_map.manifest.shards[number] for number in shards], texts=False)
        first = pa.array(loaded.first)
        ids, results = (column.combine_chunks() for column in (loaded.table["doc_id"], loaded.result_ids))
        whole = len(first) == len(ids)
        vector_NM = loaded.vector_NM if whole else loaded.vector_NM[loaded.first]
        part = cls(ids.take(first), results.take(first), vector_NM)
        part._lists[ROUTER] = loaded.lists, results
        return part

    def count(self) -> int:
        """Documents here."""
        return len(self.doc_ids)

    def sample(self, rows: Ints) -> Floats:
        """Vectors of some rows."""
        return self.vector_NM[rows]

    def sizes(self, name: str) -> Ints:
        """Rows of each leaf, as far as they lie here."""
        return self._lists[name][0].sizes

    def partition(self, name: str, centroids_LM: Floats, leaves: int) -> None:
        """Put every document into the lists of its nearest centroid, or of that and SOAR's second."""
        found_NC = nearest(self.vector_NM, centroids_LM, 1 if leaves == 1 else min(CANDIDATES, len(centroids_LM)))[0]
        result_N = self.result_N
        if leaves == 1 or len(centroids_LM) == 1:
            copies = None if result_N is None else Copies(result_N)
            lists = LeafLists.build(self.vector_NM, found_NC[:, 0], len(centroids_LM), copies)
            self._lists[name] = lists, self.result_ids
            return
        n = np.arange(len(found_NC))
        second_N = found_NC[n, second_leaves(self.vector_NM, found_NC, centroids_LM, "soar")]
        lower_N1 = np.concatenate([np.full(len(n), -1), found_NC[:, 0]])[:, None]
        copies = Copies(np.tile(n if result_N is None else result_N, 2), lower_N1)
        leaf_N = np.concatenate([found_NC[:, 0], second_N])
        lists = LeafLists.build(np.tile(self.vector_NM, (2, 1)), leaf_N, len(centroids_LM), copies)
        self._lists[name] = lists, pa.concat_arrays([self.result_ids, self.result_ids])

    def search(self, name: str, query_QM: Floats, leaves_QB: Ints, k: int) -> Found:
        """The best k results of each query [q, m] in its leaves [q, β], as far as they lie here."""
        lists, ids = self._lists[name]
        ranking = named(*lists.search(query_QM, leaves_QB, k), ids)
        return Found(ranking, lists.visited(leaves_QB), lists.scanned(leaves_QB), mean_leaves(leaves_QB))

    def exact(self, query_QM: Floats, k: int) -> Found:
        """The same among all documents here; a shard of second rows alone has none."""
        if not self.count():
            nothing = np.zeros((len(query_QM), 0))
            none_Q = np.zeros(len(query_QM), dtype=np.int64)
            ranking = named(nothing.astype(np.float32), nothing.astype(np.int64), self.result_ids)
            return Found(ranking, none_Q, none_Q)
        index = faiss.IndexFlatIP(self.vector_NM.shape[1])
        index.add(np.ascontiguousarray(self.vector_NM))
        query_QM = np.ascontiguousarray(query_QM)
        found = best(lambda fetch: index.search(query_QM, fetch), self.result_N, len(self.vector_NM), k)
        all_Q = np.full(len(query_QM), self.count())
        return Found(named(*found, self.result_ids), all_Q, all_Q)

    def held(self, most: int) -> Held:
        """The documents here that come first by hash of the id, at most so many."""
        hashes = hash_ids(self.doc_ids.to_pylist())
        first = np.argsort(hashes, kind="stable")[:most]
        ids, results = (array.take(pa.array(first)).to_pylist() for array in (self.doc_ids, self.result_ids))
        return Held(hashes[first], ids, results, self.vector_NM[first])


def best(search: Callable[[int], tuple[Floats, Ints]], result_N: Ints | None, rows: int, k: int) -> tuple[Floats, Ints]:
    """The best k results of a search for so many of `rows` rows, each result once."""
    if result_N is None:
        return search(min(k, rows))
    fetch = min(2 * k, rows)
    while True:
        scores, found = once(*search(fetch), result_N, k)
        if fetch == rows or (found.shape[1] == k and (found[:, -1] >= 0).all()):
            return scores, found
        fetch = min(2 * fetch, rows)


def results(doc_ids: pa.Array, result_ids: pa.Array) -> Ints | None:
    """Number of the result each row belongs to; None where every row is its own."""
    if result_ids.equals(doc_ids):
        return None
    return np.asarray(result_ids.dictionary_encode().indices.to_numpy(), dtype=np.int64)


def named(score_QK: Floats, row_QK: Ints, ids: pa.Array) -> Ranking:
    """A ranking of rows of `ids` that holds only the ids it names."""
    used, place = np.unique(row_QK, return_inverse=True)
    none = int((used < 0).sum())
    return Ranking(score_QK, np.reshape(place, row_QK.shape) - none, names(ids.take(pa.array(used[none:]))))


def names(ids: pa.Array) -> Names:
    """Ids as objects."""
    return np.array(ids.to_pylist(), dtype=object)


def read_vectors(corpus: Artifact, vectors: Artifact, name: str) -> pa.Table:
    """`doc_id`, `result_id` and `vector` of one file of the vectors artifact.

    Raises ValueError where the corpus's file of that name has not the same documents in the same order.
    """
    table = columns.read([vectors.path(name)], ["doc_id", "vector"])
    return table.append_column("result_id", result_ids(corpus, name, table["doc_id"]))


def result_ids(corpus: Artifact, name: str, doc_ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """What the documents of one file are results for: themselves, or the whole ones they are passages of."""
    path = corpus.path(name)
    if "parent" not in files.read_metadata(path).schema.to_arrow_schema().names:
        return doc_ids
    table = columns.read([path], ["doc_id", "parent"])
    if not table["doc_id"].equals(doc_ids):
        raise ValueError(f"{path}: not the documents of the vectors artifact in the same order")
    return table["parent"]
