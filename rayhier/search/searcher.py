"""Search over a published leaf map: encode -> route -> scan leaves -> best k."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch

from rayhier.embed.encode import TextEncoder
from rayhier.model.router import Router, load_router, route_all
from rayhier.search.lists import Ints, LeafLists
from rayhier.spec import InputError, JobSpec
from rayhier.storage import columns, current
from rayhier.storage.columns import Floats
from rayhier.storage.leaf_map import LeafMap


@dataclass(frozen=True)
class Hit:
    """One result of a query."""

    id: str
    score: float
    leaf: int
    title: str
    text: str


@dataclass(frozen=True)
class Answer:
    """Results of one query, best first, and what they cost."""

    hits: list[Hit]
    leaves: list[int]
    """Leaves visited, most probable first."""
    documents: int
    """Distinct documents scored."""
    fraction: float
    """The same, as a fraction of the corpus."""


@dataclass(frozen=True)
class LoadedMap:
    """A leaf map in memory: faiss lists, and ids and leaves by row."""

    lists: LeafLists
    vector_NM: Floats
    leaf_N: Ints
    table: pa.Table
    """The other columns, row for row."""

    @property
    def ids(self) -> pa.ChunkedArray:
        """Document ids by row."""
        return self.table["doc_id"]

    @classmethod
    def read(cls, leaf_map: LeafMap, texts: bool = True) -> Self:
        """Load every shard, its checksum compared first."""
        names = ["doc_id", "leaf", "vector", *(["title", "text"] if texts else [])]
        table = pa.concat_tables([leaf_map.read(shard, names) for shard in leaf_map.manifest.shards])
        leaf_N = table["leaf"].to_numpy().astype(np.int64)
        vector_NM = columns.matrix(table["vector"])
        lists = LeafLists(vector_NM, leaf_N, len(leaf_map.manifest.counts))
        return cls(lists, vector_NM, leaf_N, table.drop_columns(["vector"]))


class Searcher:
    """A workdir's current index, open for questions."""

    def __init__(self, spec: JobSpec, encoder: TextEncoder, router: Router, loaded: LoadedMap) -> None:
        self.spec, self.encoder, self.router, self.loaded = spec, encoder, router, loaded

    @classmethod
    def open(cls, workdir: Path) -> Self:
        """The index that `current.json` names; InputError where there is none or a file is not what was published."""
        now = current.read(workdir)
        model = current.artifact(workdir, now, "model")
        model.verify()
        index = current.artifact(workdir, now, "index")
        index.verify(without="data/")
        leaf_map = LeafMap.open(index.root)
        if leaf_map.manifest.model != model.record.fingerprint:
            raise InputError(f"{leaf_map.root}: was built by model {leaf_map.manifest.model}, not {model.folder.name}")
        encoder = TextEncoder(model.path("encoder"), now.spec.encoder)
        return cls(now.spec, encoder, load_router(model.path("router")), LoadedMap.read(leaf_map))

    def search(self, queries: Sequence[str], k: int | None = None, beam: int | None = None) -> list[Answer]:
        """The best `k` documents of each query among its `beam` most probable leaves."""
        return self.search_vectors(self.encoder.encode(queries), k or self.spec.search.k, beam or self.spec.search.beam)

    def search_vectors(self, query_QM: Floats, k: int, beam: int) -> list[Answer]:
        """The same for trained query vectors [q, m]."""
        leaves_QB = route_all(self.router, torch.from_numpy(query_QM), beam)[0].numpy()
        score_QK, row_QK = self.loaded.lists.search(query_QM, leaves_QB, k)
        visited_Q = self.loaded.lists.visited(leaves_QB)
        total = len(self.loaded.leaf_N)
        return [
            Answer(self._hits(rows, scores), leaves.tolist(), int(visited), float(visited) / total)
            for rows, scores, leaves, visited in zip(row_QK, score_QK, leaves_QB, visited_Q, strict=True)
        ]

    def _hits(self, rows: Ints, scores: Floats) -> list[Hit]:
        found = rows >= 0
        taken: list[dict[str, Any]] = self.loaded.table.take(rows[found]).to_pylist()
        return [
            Hit(row["doc_id"], float(score), row["leaf"], row["title"], row["text"])
            for row, score in zip(taken, scores[found], strict=True)
        ]
