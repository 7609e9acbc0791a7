"""An index as PyTerrier's retriever, re-ranker and indexer: `rayhier[pyterrier]`.

RayhierTerrierRetriever("runs/quickstart").search("how do I open a zip file")
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from rayhier.adapters import needs
from rayhier.adapters.store import PAGE, store_of, written
from rayhier.spec import InputError
from rayhier.spec.search import Mode

try:
    import pandas as pd
    import pyterrier as pt
except ModuleNotFoundError as error:
    raise needs("pyterrier", error) from error

FOUND = ["docno", "score", "rank", "title", "text"]


class RayhierTerrierRetriever(pt.Transformer):
    """Finds documents for queries in an index, given as a workdir, a server's address, an `Index` or a `Client`."""

    def __init__(
        self,
        index: Any,
        *,
        num_results: int = 1_000,
        mode: Mode | None = None,
        rerank: bool | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 the name in every interface
    ) -> None:
        self._store, self._k = store_of(index), num_results
        self._options: dict[str, Any] = {"where": filter, "mode": mode, "rerank": rerank}

    def __str__(self) -> str:
        return "rayhier"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Find documents for columns `qid` and `query`. Returns also `docno`, `score`, `rank`, `title` and `text`."""
        pt.validate.query_frame(inp, extra_columns=["query"])
        texts = inp["query"].tolist()
        answers = self._store.search(texts, self._k, **self._options) if texts else []
        documents = [document for each in answers for document in each]
        places = np.repeat(np.arange(len(answers)), [len(each) for each in answers])
        kept = {name: inp[name].to_numpy()[places] for name in inp.columns if name not in FOUND}
        columns = (
            [document.id for document in documents],
            [document.score for document in documents],
            [rank for each in answers for rank in range(len(each))],
            [document.title for document in documents],
            [document.text for document in documents],
        )
        return pd.DataFrame(kept | dict(zip(FOUND, columns, strict=True)))


class RayhierReranker(pt.Transformer):
    """Scores the texts of results by the cross-encoder of an index."""

    def __init__(self, index: Any) -> None:
        self._store = store_of(index)

    def __str__(self) -> str:
        return "rayhier re-ranker"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.result_frame(inp, extra_columns=["query", "text"])
        scored = inp.reset_index(drop=True).assign(score=0.0)
        for _, group in scored.groupby("qid", sort=False):
            for place, score in self._store.rerank(group["query"].iloc[0], group["text"].tolist()):
                scored.loc[group.index[place], "score"] = score
        return pt.model.add_ranks(scored)


class RayhierIndexer(pt.Indexer):
    """Writes documents to an index that is already trained, in place of documents with the same ids."""

    def __init__(self, index: Any) -> None:
        self._index, self._store = index, store_of(index)

    def index(
        self, iterator: Iterable[Mapping[str, Any]], fields: tuple[str, ...] = ("text",)
    ) -> RayhierTerrierRetriever:
        declared = self._store.fields()
        left = iter(iterator)
        while rows := list(islice(left, PAGE)):
            documents = [
                written(
                    row["docno"],
                    " ".join(_text(row, name) for name in fields),
                    {name: value for name, value in row.items() if name not in ("docno", *fields)},
                    declared,
                )
                for row in rows
            ]
            self._store.put(documents)
        return RayhierTerrierRetriever(self._index)


def _text(row: Mapping[str, Any], name: str) -> str:
    if not isinstance(value := row.get(name), str):
        raise InputError(f"{row['docno']!r:.80}: {name}: got {value!r:.80}; allowed: a text")
    return value
