"""The lexical baseline: BM25 over title and text, built whole in one process."""

from collections.abc import Sequence
from typing import Self

import bm25s
import numpy as np
import pyarrow as pa

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.documents import result_ids, result_numbers
from rayhier.dataset.ranking import Ranking, whole_scan
from rayhier.search.exact import best_results
from rayhier.search.filter import matching
from rayhier.spec.filter import Filter, fields_of
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import locate


class Bm25:
    """bm25s with its defaults: Lucene's formula, k1 1.5, b 0.75; words of 2 letters or more, no English stop words."""

    def __init__(
        self, doc_ids: pa.Array, result_ids: pa.Array, texts: Sequence[str], match_N: Bools | None = None
    ) -> None:
        """Index texts; only documents marked as matching [n] are found, words are counted over all."""
        self.result_ids, self.result_N = result_ids, result_numbers(doc_ids, result_ids)
        self.count, self.match_N = len(doc_ids), match_N
        self.index = bm25s.BM25()
        self.index.index(_tokens(texts), show_progress=False)

    @classmethod
    def of_corpus(cls, corpus: str, wanted: Filter | None = None) -> Self:
        """Index every document of a published corpus; with a filter, only those that match are found."""
        fields = [] if wanted is None else sorted(fields_of(wanted))
        artifact = Artifact.open(locate(corpus))
        tables = []
        for name in artifact.names("documents/"):
            table = columns.read([artifact.path(name)], ["doc_id", "title", "text", *fields])
            tables.append(table.append_column("result_id", result_ids(artifact, name, table["doc_id"])))
        table = pa.concat_tables(tables)
        texts = [
            f"{title} {text}" for title, text in zip(*(table[n].to_pylist() for n in ("title", "text")), strict=True)
        ]
        match_N = None if wanted is None else matching(table, wanted)
        return cls(table["doc_id"].combine_chunks(), table["result_id"].combine_chunks(), texts, match_N)

    def rank(self, texts: Sequence[str], k: int) -> Ranking:
        """The best k results of each query text that share a word with it."""
        tokens = _tokens(texts)
        weight_N = None if self.match_N is None else self.match_N.astype(np.float32)
        searched = self.count if self.match_N is None else int(self.match_N.sum())

        def fetch_rows(fetch: int) -> tuple[Floats, Ints]:
            rows, scores = self.index.retrieve(tokens, k=fetch, show_progress=False, weight_mask=weight_N)
            none = scores <= 0
            return np.where(none, -np.inf, scores).astype(np.float32), np.where(none, -1, rows.astype(np.int64))

        return whole_scan(*best_results(fetch_rows, self.result_N, self.count, k), self.result_ids, searched)


def _tokens(texts: Sequence[str]) -> list[list[str]]:
    tokens: list[list[str]] = bm25s.tokenize(list(texts), return_ids=False, show_progress=False)
    return tokens
