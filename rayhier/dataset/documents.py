"""Documents of a corpus as arrays: ids, base vectors, and the result of each row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints
from rayhier.storage import columns, files
from rayhier.storage.artifact import Artifact

Choice = Callable[[pa.ChunkedArray], pa.Array]
"""Filter of rows: id of each row's document (of a passage, its parent) -> True where the row is kept."""


@dataclass(frozen=True)
class Copies:
    """Groups of rows of the same document, which lies in several leaves or is cut into passages."""

    result_N: Ints
    """Number [n] of the result that each row belongs to; a search returns each result once, by its best row."""
    lower_NR: Ints | None = None
    """Other leaves [n, r - 1] of the row's document that rank before the row's own leaf, -1 where there are fewer."""


@dataclass(frozen=True)
class Documents:
    """Document ids [n] and base vectors [n, m], in the order of the corpus."""

    ids: list[str]
    vector_NM: Floats
    parents: list[str] | None = None
    """Id of each passage's whole document, which judgements name; None where documents are not cut into passages."""

    @property
    def results(self) -> list[str]:
        """Id of the result that each row belongs to: the row's own id, or that of its whole document."""
        return self.ids if self.parents is None else self.parents

    @property
    def copies(self) -> Copies | None:
        """Make the groups of rows of the same result; None where every row is a different result."""
        if self.parents is None:
            return None
        return Copies(np.unique(self.parents, return_inverse=True)[1].astype(np.int64))


def load_documents(corpus: Artifact, vectors: Artifact, choice: Choice | None = None) -> Documents:
    """Load ids and base vectors of all documents, or of those that `choice` keeps, and the parents of passages."""
    names, vector_PNM = [], []
    for name in vectors.names("documents/"):
        part = read_vectors(corpus, vectors, name)
        chosen = part if choice is None else part.filter(choice(part["result_id"]))
        names.append(chosen.select(["doc_id", "result_id"]))
        vector_PNM.append(columns.matrix(chosen["vector"]))
    table = pa.concat_tables(names)
    ids, results = table["doc_id"], table["result_id"]
    parents = None if results.equals(ids) else results.to_pylist()
    return Documents(ids.to_pylist(), together(vector_PNM), parents)


def together(part_PNM: list[Floats]) -> Floats:
    """Stack matrices and empty the list: each is freed once copied, so that memory never holds all of them twice."""
    every_NM = np.empty((sum(map(len, part_PNM)), part_PNM[0].shape[1]), np.float32)
    end = len(every_NM)
    while part_PNM:
        part_NM = part_PNM.pop()
        every_NM[end - len(part_NM) : end] = part_NM
        end -= len(part_NM)
    return every_NM


def read_vectors(corpus: Artifact, vectors: Artifact, name: str) -> pa.Table:
    """`doc_id`, `result_id` and `vector` of one file of the vectors artifact.

    Raises ValueError where the corpus has passages, and its file of that name other documents or another order.
    """
    table = columns.read([vectors.path(name)], ["doc_id", "vector"])
    return table.append_column("result_id", result_ids(corpus, name, table["doc_id"]))


def result_ids(corpus: Artifact, name: str, doc_ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids of the results that one file's rows belong to: the rows' own ids, or those of the passages' documents."""
    path = corpus.path(name)
    if "parent" not in files.read_metadata(path).schema.to_arrow_schema().names:
        return doc_ids
    table = columns.read([path], ["doc_id", "parent"])
    if not table["doc_id"].equals(doc_ids):
        raise ValueError(f"{path}: not the documents of the vectors artifact in the same order")
    return table["parent"]


def result_numbers(doc_ids: pa.Array, results: pa.Array) -> Ints | None:
    """Number [n] of the result that each row belongs to; None where every row is a result of its own."""
    if results.equals(doc_ids):
        return None
    return np.asarray(results.dictionary_encode().indices.to_numpy(), dtype=np.int64)


def document_text(title: str, text: str) -> str:
    """Text of a document to encode: title, then text, as BEIR does."""
    return f"{title} {text}".strip()


def document_texts(documents: pa.Table) -> list[str]:
    """Text to encode of each row of a documents table."""
    pairs = zip(documents["title"].to_pylist(), documents["text"].to_pylist(), strict=True)
    return [document_text(title, text) for title, text in pairs]


def load_titled(corpus: Artifact, ids: Sequence[str]) -> pa.Table:
    """Load `doc_id`, `title` and `text` of the documents with these ids, in the order of the corpus."""
    names, wanted = corpus.names("documents/"), pa.array(ids, pa.string())
    parts = (columns.read([corpus.path(name)], ["doc_id", "title", "text"]) for name in names)
    return pa.concat_tables(part.filter(pc.is_in(part["doc_id"], wanted)) for part in parts)


def load_texts(corpus: Artifact, ids: Sequence[str]) -> pa.ChunkedArray:
    """Load the texts to encode of the documents with these ids, in the order of the corpus."""
    table = load_titled(corpus, ids)
    return pc.utf8_trim_whitespace(pc.binary_join_element_wise(table["title"], table["text"], " "))


def texts_of(corpus: Artifact, ids: Sequence[str]) -> list[str]:
    """Load the texts to encode of documents, in the order of `ids`; one file of the corpus is in memory at a time."""
    wanted = pa.array(ids, pa.string())
    texts: dict[str, str] = {}
    for name in corpus.names("documents/"):
        table = columns.read([corpus.path(name)], ["doc_id", "title", "text"])
        table = table.filter(pc.is_in(table["doc_id"], wanted))
        texts |= zip(table["doc_id"].to_pylist(), document_texts(table), strict=True)
    return [texts[name] for name in ids]
