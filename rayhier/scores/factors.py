"""Read and write the factors artifact: for every document id with scores, a bias and perhaps a vector."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file, save_file

from rayhier.arrays import Floats, Ints, Values
from rayhier.scores.estimators import Matching
from rayhier.scores.factorise import Inductive, mapped
from rayhier.spec import InputError
from rayhier.storage import columns, files, parquet
from rayhier.storage.artifact import Artifact

CONFIG, ITEMS = "factors.json", "items.parquet"
MAPS = ("queries.safetensors", "documents.safetensors")


class Learned(BaseModel):
    """Numbers learned from a cross-encoder's scores that hold for all documents alike."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    model: str
    """Fingerprint of the model whose vectors the factors start from."""
    slope: float
    alpha: float
    beta: float
    """Factor β that, with `alpha` α, maps scores s to the range of base scores: β (s - α)."""
    biased: bool


@dataclass(frozen=True)
class Factors:
    learned: Learned
    table: pa.Table
    """Rows of documents that have scores: doc_id, bias, count, and a vector if vectors are transductive."""
    maps: tuple[Inductive, Inductive] | None = None
    """Learned maps of queries' and of documents' vectors, if vectors are inductive."""

    @classmethod
    def open(cls, factors: Artifact, model: str) -> "Factors":
        learned = Learned.model_validate(files.read_json(factors.path(CONFIG)))
        if learned.model != model:
            raise InputError(f"{factors.folder}: was made for model {learned.model}, not {model}. Run the spec again")
        table = parquet.read(factors.path(ITEMS))
        if not factors.names("map/"):
            return cls(learned, table)
        queries, documents = (_load(factors.local("map") / name) for name in MAPS)
        return cls(learned, table, (queries, documents))

    @property
    def matching(self) -> Matching:
        return Matching(self.learned.alpha, self.learned.beta)

    @cached_property
    def _ids(self) -> pa.Array:
        return self.table["doc_id"].combine_chunks()

    @cached_property
    def _vectors(self) -> Floats | None:
        return columns.matrix(self.table["vector"]) if "vector" in self.table.column_names else None

    def rows(self, ids: pa.Array) -> Ints:
        numbers = pc.fill_null(pc.index_in(ids, self._ids), -1)
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.int64)

    def vectors(self, row_N: Ints, own_NM: Floats) -> Floats:
        """Return the learned vectors [n, m] of the documents at `row_N`, or `own_NM` if none were learned."""
        if self.maps is not None:
            return mapped(self.maps[1], own_NM)
        if self._vectors is None:
            return own_NM
        vector_NM, learned = own_NM.astype(np.float32, copy=True), row_N >= 0
        vector_NM[learned] = self._vectors[row_N[learned]]
        return vector_NM

    def query(self, own_M: Floats) -> Floats:
        return own_M if self.maps is None else np.asarray(mapped(self.maps[0], own_M[None])[0])

    def prior(self, row_N: Ints, base_N: Values, slope: float | None = None) -> Values:
        """Compute documents' expected scores [n] from base scores [n], without the intercept of a query.

        `row_N` [n] are rows of the table of biases. A document with row -1 is not in the table, so its bias is 0.
        """
        bias_N = np.append(self.table["bias"].to_numpy(), 0.0)[row_N]
        return np.asarray((self.learned.slope if slope is None else slope) * base_N + bias_N)


def save_maps(queries: Inductive, documents: Inductive, folder: Path) -> None:
    for module, name in zip((queries, documents), MAPS, strict=True):
        save_file({key: value.detach().contiguous() for key, value in module.state_dict().items()}, folder / name)


def _load(file: Path) -> Inductive:
    tensors = load_file(file)
    loaded = Inductive(tensors["net.2.bias"].shape[0])
    loaded.load_state_dict(tensors)
    return loaded.eval()
