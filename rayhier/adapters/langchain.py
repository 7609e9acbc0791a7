"""An index as LangChain's vector store, embeddings and retriever: `rayhier[langchain]`.

RayhierVectorStore("runs/quickstart").as_retriever().invoke("how do I open a zip file")
"""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from pydantic import ConfigDict

from rayhier.adapters import needs, store
from rayhier.adapters.store import Store, store_of, written
from rayhier.spec import InputError
from rayhier.spec.search import Mode

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
except ModuleNotFoundError as error:
    raise needs("langchain", error) from error


class RayhierEmbeddings(Embeddings):
    """The trained encoder of an index, given as a workdir, a server's address, an `Index` or a `Client`."""

    def __init__(self, index: Any) -> None:
        self._store = store_of(index)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._store.encode(texts).tolist() if texts else []
        return vectors

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class RayhierVectorStore(VectorStore):
    """Documents of an index, given as a workdir, a server's address, an `Index` or a `Client`.

    Texts are encoded by the index's own encoder. Searches take rayhier's `filter` over declared fields
    (docs/filters.md), `mode` and the other options of `Index.search`. For metadata see `store.written`.
    """

    def __init__(self, index: Any) -> None:
        self._store: Store = store_of(index)
        self._embeddings = RayhierEmbeddings(index)

    @property
    def embeddings(self) -> Embeddings:
        return self._embeddings

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        index: Any = None,
        **_: Any,
    ) -> Self:
        """Add texts to an existing `index`. InputError without `index`, or with embeddings of another encoder."""
        if index is None:
            raise InputError("index: got none; allowed: a workdir with an index, or a server's address")
        if embedding is not None and not isinstance(embedding, RayhierEmbeddings):
            raise InputError(f"embedding: got {type(embedding).__name__}; allowed: none, as the index has an encoder")
        made = cls(index)
        made.add_texts(texts, metadatas, ids=ids)
        return made

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Write texts, which replace texts with the same ids. Returns the ids. A missing id is made at random."""
        contents = list(texts)
        named = [str(uuid.uuid4()) if id_ is None else str(id_) for id_ in (ids or [None] * len(contents))]
        about, fields = metadatas or [{} for _ in contents], self._store.fields()
        rows = [written(*each, fields) for each in zip(named, contents, about, strict=True)]
        self._store.put(rows)
        return named

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool | None:
        """Delete documents by their ids. Unknown ids are ignored. None deletes all documents."""
        named = [document.id for document in self._store.all()] if ids is None else ids
        self._store.delete(named)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        return [_document(each) for each in self._store.get(ids)]

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        return [document for document, _ in self.similarity_search_with_score(query, k, **options)]

    def similarity_search_with_score(self, query: str, k: int = 4, **options: Any) -> list[tuple[Document, float]]:
        """Find the best k documents for a text. Returns documents with their scores (higher is better)."""
        return self._searched([query], k, options)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        return [document for document, _ in self._searched(np.array([embedding], np.float32), k, options)]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Choose k of the best `fetch_k` documents, so that they are relevant but differ from each other."""
        return self.max_marginal_relevance_search_by_vector(
            self._embeddings.embed_query(query), k, fetch_k, lambda_mult, **options
        )

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        there = self.similarity_search_by_vector(embedding, fetch_k, **options)
        vectors = self._embeddings.embed_documents([document.page_content for document in there])
        best = maximal_marginal_relevance(np.array(embedding), vectors, lambda_mult, k) if vectors else []
        return [there[place] for place in best]

    def _searched(self, queries: Any, k: int, options: dict[str, Any]) -> list[tuple[Document, float]]:
        (documents,) = self._store.search(queries, k, options.pop("filter", None), **options)
        return [(_document(each), each.score) for each in documents]

    def _select_relevance_score_fn(self) -> Any:
        return lambda score: (1 + score) / 2  # maps a cosine to 0 to 1


class RayhierRetriever(BaseRetriever):
    """Finds documents by vectors, by words or both, and re-ranks them if the index has a cross-encoder."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    index: Any
    """A workdir, a server's address, an `Index` or a `Client`."""
    k: int = 10
    filter: dict[str, Any] | None = None
    mode: Mode | None = None
    """Order of results: dense, bm25 or hybrid. None: as the index's spec says."""
    rerank: bool | None = None

    def model_post_init(self, _: Any) -> None:
        self._store = store_of(self.index)

    _store: Store

    def _get_relevant_documents(self, query: str, **options: Any) -> list[Document]:
        options.pop("run_manager", None)
        defaults = {"k": self.k, "where": self.filter, "mode": self.mode, "rerank": self.rerank}
        if "filter" in options:
            options["where"] = options.pop("filter")
        (documents,) = self._store.search([query], **{**defaults, **options})
        return [_document(each) for each in documents]


def _document(stored: store.Document) -> Document:
    return Document(id=stored.id, page_content=stored.text, metadata=stored.metadata)
