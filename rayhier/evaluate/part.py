"""One process's share of a corpus: vectors of documents, and the leaves that an index or baseline puts them into.

Needs no Ray: parts are used alike in one process and in many, and `ranking.merge` joins their rankings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import nearest
from rayhier.dataset.documents import Copies, read_vectors, result_numbers
from rayhier.dataset.holdout import Holdout
from rayhier.dataset.ranking import ID, Ranking
from rayhier.model.spill import CANDIDATES, second_leaves
from rayhier.search.exact import exact
from rayhier.search.filter import matching
from rayhier.search.flat_scan import FlatScan, nodes_of, stored_part
from rayhier.search.level_similarity import FlatQuery, LevelSimilarity, Shortlist
from rayhier.search.scan import LeafScan
from rayhier.search.segment import MemorySegment, read_segment
from rayhier.spec.filter import Filter, fields_of
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap
from rayhier.storage.paths import locate
from rayhier.storage.schemas import NODES


@dataclass(frozen=True)
class Measured:
    """A filter that chooses the documents to search, and the fields of all documents that it reads, row by row."""

    where: Filter
    fields: pa.Table


ROUTER = "router"
"""Name of the leaves of the index itself, among the leaves of baselines."""


class Part:
    """Some documents (or passages) of a corpus: ids, vectors [n, m], and for each system the leaves that hold them."""

    def __init__(
        self, doc_ids: pa.Array, result_ids: pa.Array, vector_NM: Floats, measured: Measured | None = None
    ) -> None:
        """Take documents; with `measured`, only documents that match its filter are searched."""
        self.doc_ids, self.result_ids, self.vector_NM = doc_ids, result_ids, vector_NM
        self._where = None if measured is None else measured.where
        self._fields = None if measured is None else measured.fields
        self._match_N = None if measured is None else matching(measured.fields, measured.where)
        self._scans: dict[str, LeafScan] = {}
        self._levels: FlatScan | None = None

    @classmethod
    def of_vectors(cls, corpus: str, vectors: str, names: Sequence[str], where: Filter | None = None) -> Self:
        """Load base vectors from files `names` of the vectors artifact, and ids from the corpus's files of these names.

        With a filter `where`, load the fields that it reads too. ValueError where the files have other documents.
        """
        texts, base = Artifact.open(locate(corpus)), Artifact.open(locate(vectors))
        table = pa.concat_tables([read_vectors(texts, base, name) for name in names])
        ids, results = (table[name].combine_chunks() for name in ("doc_id", "result_id"))
        measured = None
        if where is not None:
            fields = columns.read([texts.path(name) for name in names], ["doc_id", *fields_of(where)])
            if not fields["doc_id"].equals(table["doc_id"]):
                raise ValueError(f"{corpus}: not the documents of the vectors artifact in the same order")
            measured = Measured(where, fields.drop_columns(["doc_id"]))
        return cls(ids, results, columns.matrix(table["vector"]), measured)

    @classmethod
    def of_shards(
        cls, index: str, shards: Sequence[int], similarity: LevelSimilarity | None = None, where: Filter | None = None
    ) -> Self:
        """Load the documents and leaves of some shards of a published index, by number; with a filter, its fields too.

        With `similarity`, load the numbers by which a level of a tree compares documents; InputError where a shard has
        no such numbers made by this model.
        """
        leaf_map = LeafMap.open(Artifact.open(locate(index)).root, BUILT)
        held_shards = [leaf_map.manifest.shards[number] for number in shards]
        for shard in held_shards if similarity is not None else ():
            nodes_of(leaf_map, shard)
        fields = [] if where is None else sorted(fields_of(where))
        segment, rows = read_segment(leaf_map, held_shards, fields)
        first = np.flatnonzero(rows["rank"].to_numpy() == 0)
        ids, results = (rows[name].combine_chunks().take(pa.array(first)) for name in ("doc_id", ID))
        is_every_row = len(first) == rows.num_rows
        measured = None if where is None else Measured(where, rows.select(fields).take(pa.array(first)))
        part = cls(ids, results, segment.vector_NM if is_every_row else segment.vector_NM[first], measured)
        part._scans[ROUTER] = LeafScan.memory(segment)
        if similarity is not None:
            nodes = pa.concat_tables([leaf_map.read(shard, [NODES]) for shard in held_shards])
            stored_nodes = nodes[NODES].take(pa.array(first))
            level = stored_part(similarity, columns.as_stored(stored_nodes), part.vector_NM, first)
            part._levels = FlatScan(similarity, [level], part._scans[ROUTER])
        return part

    def count(self) -> int:
        """Count the documents in this part."""
        return len(self.doc_ids)

    def count_matching(self) -> int:
        """Count the documents in this part that are searched: all, or those that match the filter."""
        return self.count() if self._match_N is None else int(self._match_N.sum())

    def judged(self, names: pa.Array) -> pa.Array:
        """Return the ids, among `names`, of the results that this part searches."""
        return names.filter(pc.is_in(names, self._searched[1]))

    @cached_property
    def _searched(self) -> tuple[pa.Array, pa.Array, Floats]:
        """Ids, ids of results, and vectors [n, m] of the documents that are searched."""
        if self._match_N is None:
            return self.doc_ids, self.result_ids, self.vector_NM
        is_searched = pa.array(self._match_N)
        return self.doc_ids.filter(is_searched), self.result_ids.filter(is_searched), self.vector_NM[self._match_N]

    def sample(self, rows: Ints) -> Floats:
        """Return the vectors [r, m] of some rows [r]."""
        return self.vector_NM[rows]

    def sizes(self, name: str) -> Ints:
        """Count this part's rows in each leaf, [leaves]; `name` is the system that the leaves belong to."""
        return self._scans[name].segments[0].lists.size_L

    def partition(self, name: str, centroids_LM: Floats, leaves: int) -> None:
        """Put each document into the leaf with the nearest centroid, and keep these leaves under `name`.

        With two `leaves`, a document also lies in a second one, which SOAR chooses.
        """
        near_NC = nearest(self.vector_NM, centroids_LM, 1 if leaves == 1 else min(CANDIDATES, len(centroids_LM)))[0]
        result_N = result_numbers(self.doc_ids, self.result_ids)
        ids, vector_NM, leaf_N, fields = self.result_ids, self.vector_NM, near_NC[:, 0], self._fields
        copies = None if result_N is None else Copies(result_N)
        if leaves > 1 and len(centroids_LM) > 1:
            n = np.arange(len(near_NC))
            second_N = near_NC[n, second_leaves(vector_NM, near_NC, centroids_LM)]
            lower_N1 = np.concatenate([np.full(len(n), -1), leaf_N])[:, None]
            copies = Copies(np.tile(n if result_N is None else result_N, 2), lower_N1)
            ids, vector_NM = pa.concat_arrays([ids, ids]), np.tile(vector_NM, (2, 1))
            leaf_N = np.concatenate([leaf_N, second_N])
            fields = None if fields is None else pa.concat_tables([fields, fields])
        segment = MemorySegment.of(ids, vector_NM, leaf_N, len(centroids_LM), copies, fields)
        self._scans[name] = LeafScan.memory(segment)

    def scan(self, name: str, query_QM: Floats, leaves_QB: Ints, k: int) -> Ranking:
        """Rank the best k results of each query [q, m] among this part's rows in the leaves [q, β] that it visits.

        `name` is the system that the leaves belong to.
        """
        return self._scans[name].scan(query_QM, leaves_QB, k, self._where)

    def level(self, query: FlatQuery, results: int) -> Shortlist:
        """Return each query's best rows by a level of the tree, as many as hold `results` results, with their scores.

        ValueError where the part was loaded without the numbers of a level.
        """
        if self._levels is None:
            raise ValueError("level: got a part without a tree's numbers; allowed: one loaded to be compared by them")
        return self._levels.shortlist(query, results, self._where)

    def exact(self, query_QM: Floats, k: int) -> Ranking:
        """Rank the best k results of each query [q, m] by scores of all documents of this part that are searched."""
        doc_ids, result_ids, vector_NM = self._searched
        return exact(query_QM, vector_NM, doc_ids, result_ids, k)

    def holdout(self, most: int) -> Holdout:
        """Hold out at most `most` documents of this part: those first by a hash of the id."""
        return Holdout.of(self.doc_ids, self.result_ids, self.vector_NM, most)
