"""The lexical baseline: BM25 over title and text, built whole in one process."""

from collections.abc import Sequence
from typing import Self

import pyarrow as pa

from rayhier.dataset.documents import result_ids, result_numbers
from rayhier.dataset.ranking import Ranking, whole_scan
from rayhier.search.exact import best_results
from rayhier.search.words import Words
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import locate


class Bm25:
    """BM25 over the documents of a corpus, or over its passages, of which a document counts by its best."""

    def __init__(self, doc_ids: pa.Array, result_ids: pa.Array, texts: Sequence[str]) -> None:
        self.result_ids, self.result_N = result_ids, result_numbers(doc_ids, result_ids)
        self.words = Words(texts)

    @classmethod
    def of_corpus(cls, corpus: str) -> Self:
        """Index every document of a published corpus."""
        artifact = Artifact.open(locate(corpus))
        tables = []
        for name in artifact.names("documents/"):
            table = columns.read([artifact.path(name)], ["doc_id", "title", "text"])
            tables.append(table.append_column("result_id", result_ids(artifact, name, table["doc_id"])))
        table = pa.concat_tables(tables)
        texts = [
            f"{title} {text}" for title, text in zip(*(table[n].to_pylist() for n in ("title", "text")), strict=True)
        ]
        return cls(table["doc_id"].combine_chunks(), table["result_id"].combine_chunks(), texts)

    def rank(self, texts: Sequence[str], k: int) -> Ranking:
        """The best k results of each query text that share a word with it."""
        best = best_results(lambda fetch: self.words.best(texts, fetch), self.result_N, self.words.count, k)
        return whole_scan(*best, self.result_ids, self.words.count)
