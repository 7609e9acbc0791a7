"""The Python interface: train, open, search and change an index in a few lines.

import rayhier

rayhier.run("specs/quickstart.yaml")
index = rayhier.open("runs/quickstart")
print(index.search("how do I open a zip file", k=3))
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from rayhier.arrays import Floats
from rayhier.index import change
from rayhier.index.add_file import add_file
from rayhier.index.pack import packed
from rayhier.search.index import index_root
from rayhier.search.request.hits import Answer, Hit
from rayhier.search.request.request import NO_CROSS_ENCODER
from rayhier.search.rerank import by_relevance
from rayhier.search.segment.memory import give_back
from rayhier.search.segment.stored import Listing, Lookup, Stored
from rayhier.search.snapshot import Snapshot
from rayhier.spec import InputError, JobSpec
from rayhier.spec.corpus import passages_of
from rayhier.spec.query import check_text
from rayhier.storage import current
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.model_layout import Role
from rayhier.storage.paths import Location, locate

if TYPE_CHECKING:
    import pandas as pd

RESULTS, WIDTH = 10, 100
"""RESULTS: number of results of a search without `k`. WIDTH: most characters of a printed result."""


def open_index(workdir: str | os.PathLike[str]) -> "Index":
    """Open the index that a run built in `workdir` (a folder, s3:// or gs://). InputError if there is no index."""
    return Index(workdir)


@dataclass(frozen=True)
class Results(Sequence[Hit]):
    """Results of one query, best first: a sequence of hits that prints as a table. `to_pandas` makes a data frame."""

    query: str | None
    """Text of the query. None if the query was a vector."""
    answer: Answer
    """The hits, and the number of documents visited to find them."""
    unit: str = "documents"
    """What the index holds: `documents` or `passages`."""

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> list[Hit]: ...
    def __getitem__(self, place: int | slice) -> Hit | list[Hit]:
        return self.answer.hits[place]

    def __len__(self) -> int:
        return len(self.answer.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.answer.hits)

    def __str__(self) -> str:
        lines = []
        for place, hit in enumerate(self.answer.hits, start=1):
            shown = " ".join((hit.title or hit.text).split())
            name = shown if shown == hit.id else f"{hit.id}  {shown}"
            lines.append(f"{place:>3}  {hit.score:.4f}  {name[:WIDTH]}")
        verb = "visited" if len(self.answer.visits) else "compared"
        visited = f"{verb} {self.answer.documents:,} {self.unit} ({self.answer.fraction:.1%})"
        return "\n".join([*lines, visited])

    def to_pandas(self) -> "pd.DataFrame":
        """Make a data frame with a row for each result: id, score, leaf, title, text, and the declared fields."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise InputError("to_pandas needs pandas: run pip install pandas") from None
        rows = []
        for hit in self.answer.hits:
            row = hit._asdict()
            rows.append({**row, **row.pop("fields")})
        names = ["id", "score", "leaf", "title", "text"]
        table = pd.DataFrame(rows, columns=None if rows else names)
        return table.drop(columns=["fields", "estimated"], errors="ignore")


class Index:
    """The index of a workdir, opened to search and change it. `vacuum` keeps the opened version until `close`."""

    def __init__(self, workdir: str | os.PathLike[str]) -> None:
        """Open the newest version. InputError if no run has built an index, or a published file is damaged."""
        self.workdir: Location = locate(os.fspath(workdir))
        self._searcher, self._is_closed = Snapshot.open(self.workdir), False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Index({str(self.workdir)!r}, version={self.version}, {self._unit}={len(self)})"

    def __len__(self) -> int:
        """Return the number of documents, or of passages if the corpus is cut into passages."""
        return len(self._searcher)

    @property
    def _unit(self) -> str:
        return "documents" if passages_of(self.spec.corpus) is None else "passages"

    @property
    def version(self) -> int:
        """Number of the index version that searches use. `add` and `delete` publish a new version and switch to it."""
        return self._searcher.manifest.version

    @property
    def model(self) -> str:
        """Fingerprint of the model, a hash of everything it depends on."""
        return self._searcher.manifest.model

    @property
    def spec(self) -> JobSpec:
        return self._searcher.model.spec

    def search(
        self,
        query: str | Floats,
        k: int = RESULTS,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 the name in every interface
        mode: str | None = None,
        beam: int | None = None,
        rerank: bool | None = None,
        budget: int | None = None,
    ) -> Results:
        """Find the best k documents of a query: a text, or a vector [m] made by `encode`.

        `filter` is a condition on declared fields, such as `{"year": {"gte": 2019}}`. `mode` is dense, bm25 or hybrid.
        `beam` is the most leaves to visit. `rerank` and `budget` (most calls) set re-ranking by the spec's
        cross-encoder. For None, the spec's value counts. InputError if an argument is wrong, or the index does not
        support the argument.
        """
        if not isinstance(query, str) and np.ndim(query) != 1:
            raise InputError(f"query: got {type(query).__name__}; allowed: a text, or a vector of numbers")
        queries: Sequence[str] | Floats = [query] if isinstance(query, str) else np.atleast_2d(_array(query))
        (results,) = self.search_batch(queries, k, filter=filter, mode=mode, beam=beam, rerank=rerank, budget=budget)
        return results

    def search_batch(
        self,
        queries: Sequence[str] | Floats,
        k: int = RESULTS,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        mode: str | None = None,
        beam: int | None = None,
        rerank: bool | None = None,
        budget: int | None = None,
    ) -> list[Results]:
        """Find the best k documents of each query: texts, or the rows of an array [q, m].

        The other arguments are as in `search`, and apply to all queries.
        """
        if isinstance(queries, str | bytes):
            raise InputError("queries: got text; allowed: a list of texts, or an array of vectors [q, m]")
        if self._is_closed:
            raise ValueError("this index is closed: open it again")
        if isinstance(queries, np.ndarray):
            checked: Sequence[str] | Floats = _array(queries)
            texts: Sequence[str | None] = [None] * len(queries)
        else:
            checked = [_text(text) for text in queries]
            texts = list(checked)
        request = self._searcher.rules.request(checked, k, beam, filter, mode, rerank, budget)
        return [
            Results(text, answer, self._unit)
            for text, answer in zip(texts, self._searcher.answer(request), strict=True)
        ]

    def document(self, id: str) -> Stored:  # noqa: A002 the name in every interface
        """Read the document with an id: title, text, declared fields, leaves. InputError if no document has the id."""
        documents = self._stored(Lookup((id,)))
        if not documents:
            raise InputError(f"id: got {id!r:.80}; allowed: the id of a document in the index")
        return documents[0]

    def documents(self, after: str | None = None, limit: int = 100) -> list[Stored]:
        """List at most `limit` documents in the order of their ids. If `after` is given, start after this id."""
        if not isinstance(limit, int | np.integer) or isinstance(limit, bool) or limit < 1:
            raise InputError(f"limit: got {limit!r:.80}; allowed: a whole number, 1 or more")
        return self._stored(Listing("" if after is None else after, int(limit)))

    def _stored(self, work: Lookup | Listing) -> list[Stored]:
        if self._is_closed:
            raise ValueError("this index is closed: open it again")
        return self._searcher.documents(work)

    def encode(self, texts: str | Sequence[str], role: Role = "document") -> Floats:
        """Encode n texts by the trained encoder. Returns float32 [n, m], unit vectors if the similarity is cosine.

        `role` says which prefix the encoder puts before the texts: that of a `query` or of a `document`.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        return self._searcher.model.encoder_for(role).encode(given, role)

    def rerank(self, query: str, texts: Sequence[str]) -> list[tuple[int, float]]:
        """Score texts for a query by the spec's cross-encoder. Returns their places and scores, 0 to 1, best first.

        InputError if the spec has no cross-encoder.
        """
        reranker = self._searcher.reranker
        if reranker is None:
            raise InputError(f"rerank: this index has no cross-encoder; allowed: {NO_CROSS_ENCODER}")
        checked = [_text(text) for text in texts]
        return by_relevance(np.asarray(reranker.score([_text(query)] * len(checked), checked)))

    def add(
        self,
        documents: str | os.PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        upsert: bool = False,
    ) -> int:
        """Add documents without training: a .jsonl, .csv, .tsv or .parquet file, or mappings with the corpus's columns.

        With `upsert`, documents with the same ids are replaced. Returns the new version, which later searches use.
        InputError if a document does not fit the corpus's columns, or its id is already in the index (without
        `upsert`).
        """
        newest = LeafMap.open(index_root(self.workdir, current.read(self.workdir))).manifest
        model = self._searcher.model if newest.revision == self._searcher.manifest.revision else None
        documents = [documents] if isinstance(documents, Mapping) else documents
        if isinstance(documents, str | os.PathLike):
            add_file(self.workdir, Path(documents), upsert=upsert, model=model)
        else:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "documents.jsonl"
                file.write_text("".join(f"{json.dumps(dict(document))}\n" for document in documents), "utf-8")
                try:
                    add_file(self.workdir, file, upsert=upsert, model=model)
                except InputError as error:
                    raise InputError(str(error).replace(f"{file}: ", "documents: ")) from None
        return self._reopened()

    def delete(self, ids: str | Sequence[str]) -> int:
        """Delete documents by their ids. Returns the new version for later searches. InputError for unknown ids."""
        root = index_root(self.workdir, current.read(self.workdir))
        packed(change.delete(root, [ids] if isinstance(ids, str) else list(ids)))
        return self._reopened()

    def close(self) -> None:
        """End the use of the index. A later search raises ValueError, and `vacuum` may remove the version's files."""
        self._is_closed = True
        self._searcher.close()

    def _reopened(self) -> int:
        before = self._searcher
        after = Snapshot.open(self.workdir, before)
        if before.leaves.is_open:  # columns that both versions have are read once, while both are open
            try:
                after.leaves.open()
            except BaseException:
                after.close()
                raise
        self._searcher = after
        before.close()
        give_back()
        return self.version


def _array(numbers: Any) -> Floats:
    """Convert numbers to a float32 array. InputError if `numbers` holds anything but numbers."""
    try:
        return np.asarray(numbers, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(f"query: got {numbers!r:.80}; allowed: a text, or a vector of numbers") from None


def _text(text: str) -> str:
    if not isinstance(text, str):
        raise InputError(f"query: got {text!r:.80}; allowed: a text")
    try:
        return check_text(text)
    except ValueError as error:
        raise InputError(f"query: {error}") from None
