"""An index as Haystack's document store, with filters and retrievers by vectors and by words: `rayhier[haystack]`.

RayhierTextRetriever(RayhierDocumentStore("runs/quickstart")).run("how do I open a zip file")["documents"]
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np

from rayhier.adapters import needs, store
from rayhier.adapters.store import store_of, written
from rayhier.serve.client import Client
from rayhier.spec import InputError
from rayhier.spec.corpus import FieldType
from rayhier.spec.filter import parse

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy
    from haystack.errors import FilterError
    from haystack.utils import Secret, deserialize_secrets_inplace
except ModuleNotFoundError as error:
    raise needs("haystack", error) from error

Given = ParamSpec("Given")
T = TypeVar("T")
BOUNDS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


def _in_thread(method: Callable[Given, T]) -> Callable[Given, Coroutine[Any, Any, T]]:
    """Make the asynchronous form of a method, which runs the method in a thread."""

    @wraps(method)
    async def asynchronous(*args: Given.args, **kwargs: Given.kwargs) -> T:
        return await asyncio.to_thread(method, *args, **kwargs)

    return asynchronous


class RayhierDocumentStore:
    """Documents of an index, given as a workdir, a server's address with the write token, an `Index` or a `Client`.

    Contents are encoded by the index's own encoder. Embeddings of documents are ignored.
    """

    def __init__(self, index: Any, token: Secret | None = None) -> None:
        self.index, self.token = index, token
        is_served = isinstance(index, str) and index.startswith(("http://", "https://"))
        self._store = store_of(Client(index, token and token.resolve_value()) if is_served else index)

    def to_dict(self) -> dict[str, Any]:
        """Return the index's address and the name of the token's secret, but no token. InputError for an open index."""
        if not isinstance(self.index, str):
            raise InputError("to_dict: got an open index; allowed: a store made from a workdir or an address")
        return default_to_dict(self, index=self.index, token=self.token and self.token.to_dict())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        deserialize_secrets_inplace(data["init_parameters"], ["token"])
        return default_from_dict(cls, data)

    def count_documents(self) -> int:
        return len(self._store)

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Read all documents that match a filter, in the order of ids. FilterError if the filter is not allowed."""
        return list(map(_document, self._matching(filters)))

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Write documents, and return their number. ValueError for anything but documents with text.

        If an id exists, policy FAIL raises DuplicateDocumentError. SKIP keeps the old document, and other policies
        replace the old document.
        """
        if not isinstance(documents, list) or not all(isinstance(each, Document) for each in documents):
            raise ValueError("documents: got something else; allowed: a list of haystack.Document")
        if blobs := [document.id for document in documents if document.blob is not None]:
            raise ValueError(f"documents: {blobs[0]!r:.80} has a blob; allowed: content, which is text, and meta")
        order = reversed(documents) if policy == DuplicatePolicy.SKIP else documents
        unique = {document.id: document for document in order}
        if policy in (DuplicatePolicy.FAIL, DuplicatePolicy.SKIP):
            there = {document.id for document in self._store.get(list(unique))}
            if policy == DuplicatePolicy.FAIL and (there or len(unique) < len(documents)):
                raise DuplicateDocumentError(f"documents: got existing ids: {sorted(there)[:3]}; allowed: new ids")
            unique = {id_: document for id_, document in unique.items() if id_ not in there}
        fields = self._store.fields()
        self._store.put([written(id_, each.content or "", each.meta, fields) for id_, each in unique.items()])
        return len(unique)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by their ids. Unknown ids are ignored."""
        self._store.delete(document_ids)

    def delete_all_documents(self) -> None:
        self._store.delete([document.id for document in self._store.all()])

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that match a filter. Returns their number."""
        return len(self._store.delete([document.id for document in self._matching(filters)]))

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Update the metadata of the documents that match a filter. Returns their number."""
        there = list(self._matching(filters))
        if not all(document.is_whole for document in there):
            raise ValueError("update_by_filter: the corpus is cut into passages; allowed: a corpus of whole documents")
        changed = [replace(each, meta={**each.meta, **meta}) for each in map(_document, there)]
        return self.write_documents(changed, DuplicatePolicy.OVERWRITE)

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        return sum(1 for _ in self._matching(filters))

    count_documents_async = _in_thread(count_documents)
    filter_documents_async = _in_thread(filter_documents)
    write_documents_async = _in_thread(write_documents)
    delete_documents_async = _in_thread(delete_documents)
    delete_all_documents_async = _in_thread(delete_all_documents)
    delete_by_filter_async = _in_thread(delete_by_filter)
    update_by_filter_async = _in_thread(update_by_filter)
    count_documents_by_filter_async = _in_thread(count_documents_by_filter)

    def search(self, queries: Any, k: int, filters: dict[str, Any] | None, **options: Any) -> list[Document]:
        (documents,) = self._store.search(queries, k, self._where(filters), **options)
        return list(map(_document, documents))

    def encode(self, text: str) -> list[float]:
        vector: list[float] = self._store.encode([text])[0].tolist()
        return vector

    def _matching(self, filters: dict[str, Any] | None) -> Iterator[store.Document]:
        return store.matching(self._store, self._where(filters))

    def _where(self, filters: dict[str, Any] | None) -> dict[str, Any] | None:
        if not filters:
            return None
        try:
            fields = self._store.fields()
            where = translated(filters, fields)
            parse(where, fields)
        except InputError as error:
            raise FilterError(str(error)) from None
        return where


def translated(filters: Mapping[str, Any], fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """Convert Haystack's filter to rayhier's. FilterError if a key is missing or rayhier has no such operator."""
    operator = filters.get("operator")
    if "field" not in filters:
        conditions = filters.get("conditions")
        if operator not in ("AND", "OR", "NOT") or not isinstance(conditions, list):
            allowed = "allowed: an operator AND, OR or NOT, and conditions"
            raise FilterError(f"filters: got {dict(filters)!r:.200}; {allowed}")
        parts = [translated(part, fields) for part in conditions]
        return {"not": {"and": parts}} if operator == "NOT" else {operator.lower(): parts}
    if operator is None or "value" not in filters:
        raise FilterError(f"filters: got {dict(filters)!r:.200}; allowed: field, operator and value")
    name, value = str(filters["field"]).removeprefix("meta."), filters["value"]
    there = {name: {"exists": True}}
    match operator:
        case "==":
            return {"not": there} if value is None else {name: value}
        case "!=":
            return there if value is None else {"not": {name: value}}
        case "in" | "not in" if isinstance(value, list):
            among = {name: {"in": value}}
            return among if operator == "in" else {"not": among}
        case ">" | ">=" | "<" | "<=":
            return {"and": [there, {"not": there}]} if value is None else {name: {BOUNDS[operator]: value}}
    raise FilterError(
        f"filters: got operator {operator!r} with {value!r:.80}; allowed: ==, !=, >, >=, <, <=, in, not in"
    )


def _document(stored: store.Document) -> Document:
    return Document(id=stored.id, content=stored.text, meta=stored.metadata, score=stored.score)


class _Component:
    """Base of components that read a document store. Converts components' settings to and from a dictionary."""

    _names: tuple[str, ...] = ()
    document_store: RayhierDocumentStore

    def to_dict(self) -> dict[str, Any]:
        settings = {name: getattr(self, name) for name in self._names}
        return default_to_dict(self, document_store=self.document_store.to_dict(), **settings)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        settings = data["init_parameters"]
        settings["document_store"] = RayhierDocumentStore.from_dict(settings["document_store"])
        made: Self = default_from_dict(cls, data)
        return made


@component
class RayhierTextEmbedder(_Component):
    """Encodes a query by the index's encoder."""

    def __init__(self, document_store: RayhierDocumentStore) -> None:
        self.document_store = document_store

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        return {"embedding": self.document_store.encode(text)}


@component
class RayhierEmbeddingRetriever(_Component):
    """Finds documents for a vector that the index's encoder made."""

    _names = ("filters", "top_k")

    def __init__(
        self, document_store: RayhierDocumentStore, filters: dict[str, Any] | None = None, top_k: int = 10
    ) -> None:
        self.document_store, self.filters, self.top_k = document_store, filters, top_k

    @component.output_types(documents=list[Document])
    def run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        vectors = np.array([query_embedding], np.float32)
        return {"documents": self.document_store.search(vectors, top_k or self.top_k, filters or self.filters)}


@component
class RayhierTextRetriever(_Component):
    """Finds documents for a text, by vectors, by words or both, and re-ranks if the index has a cross-encoder."""

    _names = ("filters", "top_k", "mode", "rerank")

    def __init__(
        self,
        document_store: RayhierDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        mode: str | None = None,
        rerank: bool | None = None,
    ) -> None:
        self.document_store, self.filters, self.top_k = document_store, filters, top_k
        self.mode, self.rerank = mode, rerank

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> dict[str, Any]:
        k, where = top_k or self.top_k, filters or self.filters
        return {"documents": self.document_store.search([query], k, where, mode=self.mode, rerank=self.rerank)}
