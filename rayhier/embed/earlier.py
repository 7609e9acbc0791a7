"""Read the texts of a run, and find vectors of equal texts that an earlier run in the same workdir encoded."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.arrays import Bools, Floats
from rayhier.dataset.documents import document_texts
from rayhier.dataset.generated import VECTORS as GENERATED
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.model_layout import Role

QUERIES = "queries.parquet"
Inputs = Mapping[str, Artifact]


class EarlierVectors:
    """Vectors of an earlier run, found by a digest of the text. Memory holds 24 bytes per text, and no vectors."""

    def __init__(self, vectors: Artifact | None) -> None:
        inputs = {} if vectors is None else {"vectors": vectors, **vectors.made_from()}
        self._files = [] if vectors is None else [(name, vectors.path(name)) for name in vectors.names("")]
        digests = [_digests(read_texts(inputs, name)[1], role_of(name)) for name, _ in self._files]
        self._end_F = np.cumsum([len(digest_N) for digest_N in digests])
        digest_N = np.concatenate([*digests, np.array([b"\xff" * 16])])  # the last place of a search
        self._row_N = np.argsort(digest_N, kind="stable")
        self._digest_N = digest_N[self._row_N]

    def find(self, texts: Sequence[str], role: Role, dimension: int) -> tuple[Bools, Floats]:
        """Return which texts [n] have a stored vector, and an array [n, m] with stored vectors in the texts' rows."""
        wanted_N, vector_NM = _digests(texts, role), np.empty((len(texts), dimension), np.float32)
        place_N = np.searchsorted(self._digest_N, wanted_N)
        is_stored_N, row_N = self._digest_N[place_N] == wanted_N, self._row_N[place_N]
        file_N = np.searchsorted(self._end_F, row_N, "right")
        for file in np.unique(file_N[is_stored_N]).tolist():
            here_N = is_stored_N & (file_N == file)
            stored_NM = columns.matrix(columns.read([self._files[file][1]], ["vector"])["vector"])
            vector_NM[here_N] = stored_NM[row_N[here_N] - self._end_F[file] + len(stored_NM)]
        return is_stored_N, vector_NM


def read_texts(inputs: Inputs, name: str) -> tuple[pa.Table, list[str]]:
    """Read the ids and the texts whose vectors the file `name` of the vectors artifact holds."""
    if name.startswith("documents/"):
        table = columns.read([inputs["corpus"].path(name)], ["doc_id", "title", "text"])
        return table.select(["doc_id"]), document_texts(table)
    kinds = {QUERIES: "corpus", GENERATED: "generated"}  # other texts are pseudo-queries
    path = inputs[kinds[name]].path(QUERIES) if name in kinds else inputs["vectors"].path(name)
    table = columns.read([path], ["query_id" if name in kinds else "doc_id", "text"])
    return table.drop_columns("text"), table["text"].to_pylist()


def role_of(name: str) -> Role:
    return "document" if name.startswith("documents/") else "query"


def _digests(texts: Sequence[str], role: Role) -> npt.NDArray[Any]:
    digests = (hashlib.blake2b(f"{role} {text}".encode(), digest_size=16).digest() for text in texts)
    return np.frombuffer(b"".join(digests), "S16")
