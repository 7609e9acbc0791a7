"""The lexical baseline: BM25 over title and text, built in one process."""

from collections.abc import Sequence
from typing import Self

import pyarrow as pa

from rayhier.arrays import Bools
from rayhier.dataset.documents import language, result_ids, result_numbers
from rayhier.dataset.ranking import Ranking, whole_scan
from rayhier.search.segment.exact import best_results
from rayhier.search.segment.filter import matching
from rayhier.search.words.bm25 import Bm25Index
from rayhier.spec.filter import Filter, fields_of
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact


class Bm25:
    """BM25 over the documents of a corpus. A document that is cut into passages has the score of its best passage."""

    def __init__(self, doc_ids: pa.Array, result_ids: pa.Array, words: Bm25Index, match_N: Bools | None = None) -> None:
        """Take the words of all texts. Only documents marked True in `match_N` [n] (None: all) are results."""
        self.result_ids, self.result_N = result_ids, result_numbers(doc_ids, result_ids)
        self.words, self._match_N = words, match_N

    @classmethod
    def of_corpus(cls, corpus: Artifact, where: Filter | None = None) -> Self:
        fields = [] if where is None else sorted(fields_of(where))
        tables = []
        for name in corpus.names("documents/"):
            table = columns.read([corpus.path(name)], ["doc_id", "title", "text", *fields])
            tables.append(table.append_column("result_id", result_ids(corpus, name, table["doc_id"])))
        table = pa.concat_tables(tables)
        texts = [
            f"{title} {text}" for title, text in zip(*(table[n].to_pylist() for n in ("title", "text")), strict=True)
        ]
        match_N = None if where is None else matching(table, where)
        words = Bm25Index(texts, language(corpus))
        return cls(table["doc_id"].combine_chunks(), table["result_id"].combine_chunks(), words, match_N)

    def rank(self, texts: Sequence[str], k: int) -> Ranking:
        best = best_results(
            lambda fetch: self.words.best(texts, fetch, self._match_N), self.result_N, self.words.count, k
        )
        searched = self.words.count if self._match_N is None else int(self._match_N.sum())
        return whole_scan(*best, self.result_ids, searched)
