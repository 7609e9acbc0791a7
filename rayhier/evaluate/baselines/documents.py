"""Load the documents that baselines compare, with vectors in a mapped file, and search them exactly.

Shapes: N documents (or passages), M embedding size, Q queries.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Bools, Floats, Ints, Values, for_vectors
from rayhier.dataset.documents import read_vectors, result_numbers
from rayhier.dataset.holdout import Holdout, holdout_size
from rayhier.dataset.ranking import Ranking
from rayhier.evaluate.alone import seconds_of
from rayhier.search.segment.exact import exact
from rayhier.search.segment.filter import matching
from rayhier.search.words.bm25 import Bm25Index
from rayhier.search.words.exact_hybrid import ExactHybrid
from rayhier.spec.filter import Filter, fields_of
from rayhier.storage import columns, parquet
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap


class BaselineDocuments:
    """Documents (or passages) of a corpus: ids, vectors [n, m], and which of them are searched."""

    def __init__(
        self, doc_ids: pa.Array, result_ids: pa.Array, vector_NM: Floats, match_N: Bools | None = None
    ) -> None:
        """Take documents. Only documents marked in `match_N` [n] are searched. None marks all."""
        self.doc_ids, self.result_ids, self.vector_NM, self.match_N = doc_ids, result_ids, vector_NM, match_N
        self.result_N = result_numbers(doc_ids, result_ids)
        self._built: Any = None
        """A baseline over all documents, which has a method `rank` and, if the baseline is timed, `alone`."""

    @classmethod
    def of_vectors(cls, corpus: Artifact, vectors: Artifact, where: Filter | None = None) -> Self:
        """Load base vectors and the fields of a filter. ValueError if `corpus` and `vectors` differ in documents."""
        names, fields = vectors.names("documents/"), [] if where is None else sorted(fields_of(where))

        def read(name: str) -> pa.Table:
            table = read_vectors(corpus, vectors, name)
            read_fields = columns.read([corpus.path(name)], ["doc_id", *fields]) if fields else table
            if not read_fields["doc_id"].equals(table["doc_id"]):
                raise ValueError(f"{corpus.folder}: not the documents of the vectors artifact in the same order")
            return _with(table, read_fields.select(fields))

        count = sum(parquet.metadata(vectors.path(name)).num_rows for name in names)
        return cls._of(map(read, names), count, where)

    @classmethod
    def of_index(cls, index: Artifact, where: Filter | None = None) -> Self:
        leaf_map = LeafMap.open(index.root, BUILT)
        fields = [] if where is None else sorted(fields_of(where))

        def read(number: int) -> pa.Table:
            shard = leaf_map.manifest.shards[number]
            key = leaf_map.key(shard)
            table = leaf_map.read(shard, list(dict.fromkeys(["doc_id", key, "rank", "vector", *fields])))
            table = table.filter(pc.equal(table["rank"], 0))
            named = pa.table({"doc_id": table["doc_id"], "result_id": table[key], "vector": table["vector"]})
            return _with(named, table.select(fields))

        return cls._of(map(read, range(len(leaf_map.manifest.shards))), leaf_map.manifest.documents, where)

    @classmethod
    def _of(cls, tables: Iterable[pa.Table], count: int, where: Filter | None) -> Self:
        """Join tables of `count` documents in all. Many vectors go to a mapped file, to save memory."""
        vector_NM, begin, rows = np.zeros((0, 0), np.float32), 0, list[pa.Table]()
        for table in tables:
            part_NM = columns.matrix(table["vector"])
            if not rows and count:
                vector_NM = for_vectors(count, part_NM.shape[1])
            vector_NM[begin : begin + len(part_NM)] = part_NM
            begin += len(part_NM)
            rows.append(table.drop_columns(["vector"]))
        joined = pa.concat_tables(rows)
        ids, results = (joined[name].combine_chunks() for name in ("doc_id", "result_id"))
        return cls(ids, results, vector_NM, None if where is None else matching(joined, where))

    def counts(self) -> tuple[int, int]:
        every = len(self.doc_ids)
        return every, every if self.match_N is None else int(self.match_N.sum())

    def judged(self, names: Sequence[str]) -> set[str]:
        asked = pa.array(names, pa.string())
        return set(asked.filter(pc.is_in(asked, self._searched()[1])).to_pylist())

    def exact(self, query_QM: Floats, k: int) -> Ranking:
        doc_ids, result_ids, vector_NM = self._searched()
        return exact(query_QM, vector_NM, doc_ids, result_ids, k)

    def with_words(self, words: Bm25Index, *, cosines: bool) -> ExactHybrid:
        """Make the exact search by vectors and BM25. `words` is BM25 over all documents, in the same order."""
        return ExactHybrid(words, self.vector_NM, self.doc_ids, self.result_ids, self.match_N, cosines)

    def _searched(self) -> tuple[pa.Array, pa.Array, Floats]:
        if self.match_N is None:
            return self.doc_ids, self.result_ids, self.vector_NM
        is_searched = pa.array(self.match_N)
        return self.doc_ids.filter(is_searched), self.result_ids.filter(is_searched), self.vector_NM[self.match_N]

    def holdout(self) -> Holdout:
        return Holdout.of(self.doc_ids, self.result_ids, self.vector_NM, holdout_size(len(self.doc_ids)))

    def sample(self, most: int, seed: int) -> Ints | None:
        """Draw the rows of at most `most` documents. None if these are all documents."""
        n, generator = len(self.doc_ids), np.random.default_rng(seed)
        return None if n <= most else np.sort(generator.choice(n, most, replace=False, shuffle=False))

    def some(self, most: int, wanted: Collection[str], seed: int) -> Self:
        """Return about `most` documents, drawn at random, and all documents of the `wanted` results."""
        drawn = self.sample(most, seed)
        if drawn is None:
            return self
        is_wanted = pc.is_in(self.result_ids, pa.array(sorted(wanted), pa.string())).to_numpy(zero_copy_only=False)
        row_N = np.union1d(drawn, np.flatnonzero(is_wanted))
        ids, results = (names.take(pa.array(row_N)) for names in (self.doc_ids, self.result_ids))
        match_N = None if self.match_N is None else self.match_N[row_N]
        return type(self)(ids, results, self.vector_NM[row_N].astype(np.float32), match_N)

    def build(self, make: Callable[..., object], *arguments: Any) -> None:
        self.release()
        self._built = make(self, *arguments)

    def release(self) -> None:
        self._built = None

    def rank(self, query_QM: Floats, width: int, k: int) -> Ranking:
        ranking: Ranking = self._built.rank(query_QM, width, k)
        return ranking

    def seconds(self, query_QM: Floats, width: int, k: int) -> Values:
        """Measure the seconds [q] that each query takes alone on one core."""
        return seconds_of(self._built.alone, [(query_M[None], width, k) for query_M in query_QM])


def _with(table: pa.Table, fields: pa.Table) -> pa.Table:
    for name in fields.column_names:
        table = table.append_column(name, fields[name])
    return table
