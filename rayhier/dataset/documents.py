"""Load documents of a corpus as arrays: ids, base vectors, and the result that each row belongs to."""

import mmap
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints, for_vectors
from rayhier.spec.corpus import Language
from rayhier.storage import columns, parquet
from rayhier.storage.artifact import Artifact

Choice = Callable[[pa.ChunkedArray], pa.Array]
"""Function that chooses rows by the id of each row's document. A passage has the id of the whole document."""


@dataclass(frozen=True)
class Documents:
    ids: list[str]
    vector_NM: Floats
    parents: list[str] | None = None
    """Id of the document that each passage was cut from. Judgements name these ids."""

    @property
    def results(self) -> list[str]:
        return self.ids if self.parents is None else self.parents

    @property
    def result_N(self) -> Ints | None:  # noqa: N802  an array's name ends in its shape
        """Number [n] of the result that each row belongs to. None if each row is a separate result."""
        return None if self.parents is None else np.unique(self.parents, return_inverse=True)[1].astype(np.int64)


def language(corpus: Artifact) -> Language:
    """Return the language of a corpus. Older corpora have `other` for `none`, or no language, which means English."""
    named = corpus.record.counts.get("language", "english")
    today: Language = {"other": "none"}.get(named, named)
    return today


def load_documents(corpus: Artifact, vectors: Artifact, choice: Choice | None = None) -> Documents:
    """Load all documents of a corpus, or the rows of a choice. Many vectors are float16 in a mapped file."""
    files, names, vector_NM, end = vectors.names("documents/"), list[pa.Table](), for_vectors(0, 0), 0
    rows = sum(parquet.metadata(vectors.path(name)).num_rows for name in files)
    for name in files:
        part = read_vectors(corpus, vectors, name)
        chosen = part if choice is None else part.filter(choice(part["result_id"]))
        part_NM = columns.matrix(chosen["vector"])
        vector_NM = vector_NM if names else for_vectors(rows, part_NM.shape[1])
        names.append(chosen.select(["doc_id", "result_id"]))
        vector_NM[end : end + len(chosen)] = part_NM
        end += len(chosen)
    table = pa.concat_tables(names)
    ids, results = table["doc_id"], table["result_id"]
    parents = None if results.equals(ids) else results.to_pylist()
    return Documents(ids.to_pylist(), vector_NM[:end], parents)


def read_vectors(corpus: Artifact, vectors: Artifact, name: str) -> pa.Table:
    """Read `doc_id`, `result_id` and `vector` of the rows in a file of the vectors artifact."""
    table = columns.read([vectors.path(name)], ["doc_id", "vector"])
    return table.append_column("result_id", result_ids(corpus, name, table["doc_id"]))


def result_ids(corpus: Artifact, name: str, doc_ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the document of each row. ValueError if the corpus's file `name` does not have the rows `doc_ids`."""
    path = corpus.path(name)
    if "parent" not in parquet.metadata(path).schema.to_arrow_schema().names:
        return doc_ids
    table = columns.read([path], ["doc_id", "parent"])
    if not table["doc_id"].equals(doc_ids):
        raise ValueError(f"{path}: not the documents of the vectors artifact in the same order")
    return table["parent"]


def result_numbers(doc_ids: pa.Array, results: pa.Array) -> Ints | None:
    """Return the number [n] of each row's result. None if each row is a separate result."""
    if results.equals(doc_ids):
        return None
    return np.asarray(results.dictionary_encode().indices.to_numpy(), dtype=np.int64)


def document_text(title: str, text: str) -> str:
    """Join title and text to the text that is encoded, with a blank between them, as BEIR does."""
    return f"{title} {text}".strip()


def document_texts(documents: pa.Table) -> list[str]:
    pairs = zip(documents["title"].to_pylist(), documents["text"].to_pylist(), strict=True)
    return [document_text(title, text) for title, text in pairs]


def load_titled(corpus: Artifact, ids: Sequence[str]) -> pa.Table:
    names, wanted = corpus.names("documents/"), pa.array(ids, pa.string())
    parts = (columns.read([corpus.path(name)], ["doc_id", "title", "text"]) for name in names)
    return pa.concat_tables(part.filter(pc.is_in(part["doc_id"], wanted)) for part in parts)


def load_texts(corpus: Artifact, ids: Sequence[str]) -> pa.ChunkedArray:
    table = load_titled(corpus, ids)
    return pc.utf8_trim_whitespace(pc.binary_join_element_wise(table["title"], table["text"], " "))


class Texts:
    """Texts that are read by row. The time to read does not grow with the number of texts."""

    def __init__(self, texts: pa.ChunkedArray) -> None:
        self._chunks = texts.chunks
        self._end_C = np.cumsum([len(chunk) for chunk in self._chunks], dtype=np.int64)

    @classmethod
    def of(cls, corpus: Artifact) -> Self:
        """Copy the texts of a corpus's documents to a mapped file. The file is removed with this object."""
        with tempfile.TemporaryFile() as file:
            with pa.ipc.new_file(file, schema := pa.schema([("text", pa.string())])) as writer:
                for name in corpus.names("documents/"):
                    part = columns.read([corpus.path(name)], ["title", "text"])
                    joined = pc.binary_join_element_wise(part["title"], part["text"], " ")
                    writer.write_table(pa.table([pc.utf8_trim_whitespace(joined)], schema=schema))
            file.flush()
            mapped = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return cls(pa.ipc.open_file(mapped).read_all()["text"])

    def __len__(self) -> int:
        return int(self._end_C[-1]) if len(self._end_C) else 0

    def __getitem__(self, row_N: Ints) -> list[str]:
        chunk_N = np.searchsorted(self._end_C, row_N, "right")
        place_N = row_N - np.concatenate([[0], self._end_C])[chunk_N]
        places = zip(chunk_N.tolist(), place_N.tolist(), strict=True)
        return [self._chunks[chunk][place].as_py() for chunk, place in places]


def texts_of(corpus: Artifact, ids: Sequence[str]) -> list[str]:
    table = load_titled(corpus, ids)
    texts = dict(zip(table["doc_id"].to_pylist(), document_texts(table), strict=True))
    return [texts[name] for name in ids]
