"""One interface for adapters to search, read and change an index, open in this process or served."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats
from rayhier.python import Index
from rayhier.search.segment.filter import matching as matches
from rayhier.search.segment.stored import Stored
from rayhier.serve.client import Client
from rayhier.serve.errors import ApiError
from rayhier.serve.http.bodies import DocumentBody
from rayhier.spec import InputError
from rayhier.spec.corpus import FieldType
from rayhier.spec.filter import parse
from rayhier.storage.paths import locate

PAGE = 1_000
"""Number of documents that are read, written or deleted at once."""
ARROW = {"int": pa.int64(), "float": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
METADATA = "metadata"
"""Declared field of type string in which a corpus may keep a document's metadata as JSON."""


@dataclass(frozen=True)
class Document:
    """A document of the index. `score` is set if a search found the document."""

    id: str
    title: str
    text: str
    fields: Mapping[str, Any]
    """Values of the declared fields. None for a missing value."""
    score: float = 0.0
    is_whole: bool = True
    """False if the text is made of passages, which may overlap."""

    @property
    def metadata(self) -> dict[str, Any]:
        """Title and declared fields with a value. The JSON in the field METADATA has precedence."""
        there = {name: value for name, value in self.fields.items() if value is not None}
        read = _object(there.get(METADATA))
        if read is not None:
            del there[METADATA]
        return {**({"title": self.title} if self.title else {}), **there, **(read or {})}


def _object(text: Any) -> dict[str, Any] | None:
    """Read a JSON object. None if the text is anything else."""
    try:
        read = json.loads(text)
    except (TypeError, ValueError):
        return None
    return read if isinstance(read, dict) else None


@dataclass(frozen=True)
class Opened:
    """An index that is open in this process, and whose methods raise InputError."""

    index: Index

    def fields(self) -> Mapping[str, FieldType]:
        return self.index.spec.corpus.field_types

    def search(
        self, queries: Sequence[str] | Floats, k: int, where: Mapping[str, Any] | None = None, **options: Any
    ) -> list[list[Document]]:
        answers = self.index.search_batch(queries, k, filter=where, **options)
        return [[Document(hit.id, hit.title, hit.text, hit.fields, hit.score) for hit in hits] for hits in answers]

    def put(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Write documents (`id`, `title`, `text`, `fields`) as one version of the index."""
        names = self.index.spec.corpus.row_columns
        kept = {"id": names.id, "title": names.title, "text": names.text}
        rows = [
            {kept[name]: value for name, value in document.items() if kept.get(name)} | document.get("fields", {})
            for document in documents
        ]
        if rows:
            self.index.add(rows, upsert=True)

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete documents as one version of the index. Returns the ids that were in the index."""
        there = [document.id for document in self.get(ids)]
        if there:
            self.index.delete(there)
        return there

    def get(self, ids: Sequence[str]) -> list[Document]:
        """Read the documents with the given ids, in the order of the ids. Unknown ids are ignored."""
        documents = list[Document]()
        for id_ in dict.fromkeys(ids):
            with contextlib.suppress(InputError):
                documents.append(_read(self.index.document(id_)))
        return documents

    def all(self) -> Iterator[Document]:
        after: str | None = None
        while page := self.index.documents(after, PAGE):
            yield from map(_read, page)
            after = page[-1].id

    def encode(self, texts: Sequence[str]) -> Floats:
        return self.index.encode(list(texts))

    def rerank(self, query: str, texts: Sequence[str]) -> list[tuple[int, float]]:
        return self.index.rerank(query, texts)

    def state(self) -> str:
        return f"{self.index.model}-{self.index.version}"

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Served:
    """An index that a server serves, and whose methods raise ApiError. To write, the client needs the write token."""

    client: Client

    def fields(self) -> Mapping[str, FieldType]:
        return self.client.index().fields

    def search(
        self, queries: Sequence[str] | Floats, k: int, where: Mapping[str, Any] | None = None, **options: Any
    ) -> list[list[Document]]:
        """Find the best k documents per query, with several requests if the server limits queries per request."""
        if len(queries) == 1:
            answers = [self.client.search(queries[0], k, filter=where, **options).results]
        else:
            answers = [results for part in self._parts(queries) for results in self._answers(part, k, where, options)]
        return [
            [Document(hit.id, hit.title or "", hit.text or "", hit.fields or {}, hit.score) for hit in results]
            for results in answers
        ]

    def _answers(self, queries: Any, k: int, where: Mapping[str, Any] | None, options: dict[str, Any]) -> list[Any]:
        """Return the results of each query. If all answers are too large, request half of the queries at a time."""
        try:
            return [answer.results for answer in self.client.search_batch(queries, k, filter=where, **options).answers]
        except ApiError as error:
            if error.code != "answer_too_large" or len(queries) == 1:
                raise
        half = len(queries) // 2
        return [each for part in (queries[:half], queries[half:]) for each in self._answers(part, k, where, options)]

    def put(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Write documents, at most a thousand per change of the log. An ApiError says how many were written."""
        size, begin = PAGE, 0
        while begin < len(documents):
            try:
                self.client.put(documents[begin : begin + size])
            except ApiError as error:
                if error.status == 413 and size > 1:
                    size = max(1, min(size, len(documents) - begin) // 2)
                    continue
                if not begin:
                    raise
                said = f"the first {begin} documents are written, the next are not: {error.message}"
                raise ApiError(error.status, error.code, said) from None
            begin += size

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete documents, a thousand per change of the log. Returns the ids that were in the index."""
        there = [document.id for document in self.get(ids)]
        for begin in range(0, len(there), PAGE):
            self.client.delete(there[begin : begin + PAGE])
        return there

    def get(self, ids: Sequence[str]) -> list[Document]:
        documents = list[Document]()
        for id_ in dict.fromkeys(ids):
            try:
                documents.append(_read(self.client.document(id_)))
            except ApiError as error:
                if error.status != 404:
                    raise
        return documents

    def all(self) -> Iterator[Document]:
        after: str | None = None
        while True:
            page = self.client.documents(after, PAGE)
            yield from map(_read, page.documents)
            if (after := page.next) is None:
                return

    def encode(self, texts: Sequence[str]) -> Floats:
        return np.array([vector for part in self._parts(texts) for vector in self.client.encode(part)], np.float32)

    def rerank(self, query: str, texts: Sequence[str]) -> list[tuple[int, float]]:
        return self.client.rerank(query, texts)

    def state(self) -> str:
        index = self.client.index()
        return f"{index.model}-{index.version}-{index.log}"

    def __len__(self) -> int:
        return self.client.index().documents

    def _parts(self, queries: Any) -> Iterator[Any]:
        most = int(self.client.index().limits["max_batch"])
        return (queries[begin : begin + most] for begin in range(0, len(queries), most))


Store = Opened | Served
"""An index that adapters search, read and change."""
_SHARED: "WeakValueDictionary[str, Index]" = WeakValueDictionary()
"""Workdir -> its open index, so that adapters of the same workdir see each other's changes."""


def store_of(index: "str | os.PathLike[str] | Index | Client") -> Store:
    """Make the store of an index: an `Index`, a `Client`, a server's address (http://…), or a workdir to open."""
    if isinstance(index, Index):
        return Opened(index)
    if isinstance(index, Client):
        return Served(index)
    if isinstance(index, str) and index.startswith(("http://", "https://")):
        return Served(Client(index))
    location = locate(os.fspath(index))
    place = str(location.resolve() if isinstance(location, Path) else location)
    opened = _SHARED.get(place) or Index(index)
    _SHARED[place] = opened
    return Opened(opened)


def matching(store: Store, where: Mapping[str, Any] | None) -> Iterator[Document]:
    """Read all documents that match a filter, in the order of ids. InputError if the filter is not allowed."""
    if where is None:
        yield from store.all()
        return
    fields = store.fields()
    meets = parse(where, fields)
    schema = pa.schema([(name, ARROW[kind]) for name, kind in fields.items()])
    left = store.all()
    while documents := list(islice(left, PAGE)):
        table = pa.Table.from_pylist([dict(each.fields) for each in documents], schema)
        is_match_N = matches(table, meets)
        yield from (document for document, is_match in zip(documents, is_match_N, strict=True) if is_match)


def _read(document: Stored | DocumentBody) -> Document:
    return Document(document.id, document.title, document.text, document.fields, is_whole=document.passages is None)


def written(id_: str, text: str, metadata: Mapping[str, Any], fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """Make a document for `Store.put` from the text and metadata of another library.

    If the corpus declares the string field METADATA, the field holds all metadata as JSON. Without the field,
    InputError if metadata has an undeclared name. Declared fields hold the metadata of the same name.
    """
    declared = {name: value for name, value in metadata.items() if name in fields and name != METADATA}
    title, keeps_all = metadata.get("title"), fields.get(METADATA) == "string"
    if not keeps_all and not isinstance(title, str | None):
        raise InputError(f"{id_!r:.80}: metadata.title: got {title!r:.80}; allowed: a text")
    kept = {"id": id_, "title": title if isinstance(title, str) else "", "text": text}
    for name, value in metadata.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            said = f"got {type(value).__name__}; allowed: values of JSON, such as texts, numbers, lists, mappings"
            raise InputError(f"{id_!r:.80}: metadata.{name}: {said}") from None
    if keeps_all:
        return {**kept, "fields": {**declared, METADATA: json.dumps(metadata)}}
    unknown = [name for name in metadata if name not in fields and name != "title"]
    if unknown:
        raise InputError(
            f"metadata: got {unknown[0]!r:.80}; allowed: {', '.join(['title', *fields])}. Or declare a field "
            f"{METADATA!r} of type string in the corpus, which takes any metadata"
        )
    return {**kept, "fields": declared}
