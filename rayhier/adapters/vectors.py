"""An index of given vectors, which no text has: made, changed and searched as any other, in a temporary folder.

Leaves are those of k-means, untaught. rayhier compares vectors by inner products alone, so vectors of
metric `angular` are made unit vectors, and those of `euclidean` get two more numbers. With y and z the document's and
the query's vector less the documents' mean, and m the mean of |y|²,

    document  y, (m - |y|²) / 2t, what its length lacks of the longest document's
    query     z, t, 0

have the inner product (m - |y - z|² + |z|²) / 2, so that the best documents are the nearest. Any t > 0 does; the one
taken makes the second number vary as much as the others, which codes of four bits need.

Shapes: N documents, Q queries, M numbers of a vector, P those of a vector as it is stored, K results.
"""

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.embed.encode import TextEncoder
from rayhier.index import change
from rayhier.index.assign import Assigner, leaf_sizes
from rayhier.index.maintain import maintain
from rayhier.index.shards import write_rows
from rayhier.index.vacuum import vacuum
from rayhier.model.encoded import Encoded
from rayhier.model.router import Router, load_router
from rayhier.search.request.model import Model
from rayhier.search.snapshot import Snapshot
from rayhier.spec import InputError, JobSpec, load
from rayhier.spec.router import LearnedIvfRouting
from rayhier.storage import leaf_map, schemas
from rayhier.storage.leaf_map import BUILT, LeafMap, Manifest
from rayhier.train.learned_ivf.kmeans_start import make_router, settle

METRICS = ("angular", "euclidean", "ip")
TINY = 1e-12
CACHE = "RAYHIER_CACHE"


@dataclass(frozen=True)
class Space:
    """How vectors of a metric become those that inner products compare."""

    metric: str
    mean_M: Floats
    middle: float = 0.0
    """Mean of documents' squared distances from their mean, m."""
    weight: float = 1.0
    """Number of a query that stands where documents have their squared length, t."""
    longest: float = 0.0
    """Greatest squared length of a document with the first additional number."""

    @classmethod
    def of(cls, metric: str, document_NM: npt.NDArray[Any]) -> Self:
        """Make the space in which documents like these [n, m] are compared."""
        mean_M = np.asarray(np.mean(document_NM, axis=0, dtype=np.float32))
        if metric != "euclidean":
            return cls(metric, mean_M)
        square_N = ((document_NM - mean_M) ** 2).sum(axis=1)
        middle = float(square_N.mean())
        weight = float(square_N.std()) / max(2 * (middle / len(mean_M)) ** 0.5, TINY) or 1.0
        return cls(metric, mean_M, middle, weight, float((square_N + ((middle - square_N) / (2 * weight)) ** 2).max()))

    def documents(self, vector_NM: npt.NDArray[Any]) -> Floats:
        """Return documents' vectors [n, m] as they are stored, [n, p]."""
        if self.metric != "euclidean":
            return self.queries(vector_NM)
        y_NM = vector_NM - self.mean_M
        square_N = (y_NM**2).sum(axis=1)
        less_N = (self.middle - square_N) / (2 * self.weight)
        return np.column_stack([y_NM, less_N, np.sqrt(np.maximum(self.longest - square_N - less_N**2, 0))])

    def queries(self, vector_QM: npt.NDArray[Any]) -> Floats:
        """Return queries' vectors [q, m] as they are compared, [q, p]."""
        query_QM = np.asarray(vector_QM, np.float32)
        if self.metric == "angular":
            return np.asarray(query_QM / np.maximum(np.linalg.norm(query_QM, axis=1, keepdims=True), TINY))
        if self.metric == "ip":
            return query_QM
        further_Q2 = np.tile(np.array([self.weight, 0], np.float32), (len(query_QM), 1))
        return np.column_stack([query_QM - self.mean_M, further_Q2])


class VectorIndex:
    """An index of vectors under numbers, in place of ids; the first ones that it gets make its leaves."""

    def __init__(self, metric: str, k: int, sections: Mapping[str, Mapping[str, Any]]) -> None:
        """Take a metric, the usual number of results, and sections of a spec, such as `router` and `index`.

        InputError names a metric that is not served, or a key of a section that is not allowed.
        """
        if metric not in METRICS:
            raise InputError(f"metric: got {metric!r:.80}; allowed: {', '.join(METRICS)}")
        self._metric, self._k, self._sections = metric, k, sections
        self._folder = Path(tempfile.mkdtemp(prefix="rayhier-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._root, self._spec = self._folder / "index", self._read({})
        self._space: Space | None = None
        self._router: Router | None = None
        self._searcher: Snapshot | None = None
        self.asked = self.visited = self.compared = 0
        """Since `search_as`: queries, documents visited for them, and rows and leaves compared."""

    def put(self, numbers: Iterable[int], vector_NM: npt.NDArray[Any], *, replaces: bool = False) -> None:
        """Add vectors [n, m] under new numbers [n]. InputError if one is there already, unless it `replaces`."""
        table = pa.table([_ids(numbers), *[pa.repeat("", len(vector_NM))] * 2], schema=schemas.DOCUMENTS)
        with self._own_cache():
            if self._space is None or self._router is None:
                self._space = Space.of(self._metric, vector_NM)
                self._router = self._built(table, self._space.documents(vector_NM))
            else:
                batch, put = Encoded.of(self._space.documents(vector_NM)), change.upsert if replaces else change.add
                put(self._root, Assigner(self._router, self._spec), [(table, batch)])
            self._changed(self._router)

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete the vectors with some numbers. InputError where a number is not there."""
        if self._router is None:
            raise InputError("numbers: got some, but there are no vectors; allowed: to put vectors first")
        with self._own_cache():
            change.delete(self._root, _ids(numbers).to_pylist())
            self._changed(self._router)

    def search_as(self, search: Mapping[str, Any]) -> None:
        """Let searches follow a spec's section `search`. InputError names a key that is not allowed."""
        self._spec = self._read(search)
        self.asked = self.visited = self.compared = 0
        if self._router is not None:
            with self._own_cache():
                self._open(self._router)

    def search(self, query_QM: npt.NDArray[Any], k: int) -> Ints:
        """Find the numbers [q, k] of each query's best vectors, nearest first; -1 where there are fewer."""
        if self._space is None or self._router is None or self._searcher is None:
            raise InputError("query: got one, but there are no vectors; allowed: to put vectors first")
        request = self._searcher.rules.request(self._space.queries(query_QM), k)
        ranking = self._searcher.retrieve(replace(request, needs="ids")).ranking
        self.asked, self.visited = self.asked + len(query_QM), self.visited + int(ranking.visited_Q.sum())
        self.compared += int(np.maximum(ranking.visited_Q, ranking.scanned_Q).sum())
        self.compared += int((ranking.leaves_Q > 0).sum()) * self._router.n_leaves
        number_N = np.append(ranking.documents["id"].to_numpy().astype(np.int64), -1)
        number_QK = np.full((len(query_QM), k), -1)
        number_QK[:, : ranking.row_QK.shape[1]] = number_N[ranking.row_QK]
        return number_QK

    def close(self) -> None:
        self._searcher = None
        self._remove()

    @contextlib.contextmanager
    def _own_cache(self) -> Iterator[None]:
        """Keep files for searches beside the index: what an earlier one left would be used, and not made anew."""
        before = os.environ.get(CACHE)
        os.environ[CACHE] = str(self._folder / "cache")
        try:
            yield
        finally:
            os.environ.pop(CACHE)
            os.environ.update({} if before is None else {CACHE: before})

    def _read(self, search: Mapping[str, Any]) -> JobSpec:
        # Neighbours differ little in their squared length, for which 16 bits are too few.
        vectors = "float32" if self._metric == "euclidean" else "float16"
        similarity = "cosine" if self._metric == "angular" else "dot"
        spec: dict[str, Any] = {
            "name": "vectors",
            "workdir": str(self._folder),
            "corpus": {"type": "jsonl", "documents": "none"},
            "encoder": {"model": "package:none", "similarity": similarity},
            "router": {"type": "learned_ivf"},
            "index": {"vectors": vectors, "words": False},
            "search": {"k": self._k, **search},
        }
        return load({**spec, **{name: {**spec.get(name, {}), **keys} for name, keys in self._sections.items()}})

    def _built(self, documents: pa.Table, vector_NP: Floats) -> Router:
        """Make leaves of vectors [n, p], and publish the first version."""
        routing = self._spec.router
        if not isinstance(routing, LearnedIvfRouting):
            raise InputError(f"router.type: got {routing.type}; allowed: learned_ivf, which needs no queries")
        if len(vector_NP) < (least := routing.leaves(len(vector_NP))):
            raise InputError(f"vectors: got {len(vector_NP)}; allowed: at first {least} or more, one for each leaf")
        router = make_router(routing, vector_NP, seed=0)
        settle(router, vector_NP, self._spec, seed=0)
        rows = Assigner(router, self._spec)(documents, Encoded.of(vector_NP))
        self._root.mkdir()
        manifest = Manifest(
            version=BUILT,
            parent=None,
            model="none",
            dimension=vector_NP.shape[1],
            metric="inner_product",
            vectors=self._spec.index.vectors,
            documents=len(vector_NP),
            leaves_per_document=self._spec.leaves_per_document,
            counts=leaf_sizes(rows, router.n_leaves).tolist(),
            shards=[write_rows(self._root, "data/shard-00000.parquet", rows, words=None)],
        )
        leaf_map.publish(self._root, manifest)
        return router

    def _changed(self, router: Router) -> None:
        """Split leaves that grew and give up those that shrank, as servers do, and search the newest version."""
        while (after := maintain(self._root, router, self._spec)) is not None and (folder := after.router()):
            router = load_router(folder)
        self._open(router)
        vacuum(self._root)

    def _open(self, router: Router) -> None:
        self._router, model = router, Model(router, _no_encoder, self._spec)
        self._searcher = Snapshot(self._spec, LeafMap.open(self._root), model)
        self._searcher.open_files()


class RunnerReports:
    """What the runners of ann-benchmarks and big-ann-benchmarks ask for alike."""

    _index: VectorIndex
    _said: list[dict[str, Any]]
    """The sections of the spec, in the name that results have."""

    def get_additional(self) -> dict[str, Any]:
        """Return rows and leaves compared for all queries together, and documents visited for one."""
        index = self._index
        return {"dist_comps": index.compared, "documents_visited": index.visited / max(1, index.asked)}

    def done(self) -> None:
        """Remove the index."""
        self._index.close()

    def __str__(self) -> str:
        """Return the name that results have."""
        return f"rayhier({', '.join(map(str, self._said))})"


def _ids(numbers: Iterable[int]) -> pa.Array:
    return pa.array([str(number) for number in numbers], pa.string())


def _no_encoder() -> TextEncoder:
    raise InputError("query: got a text; allowed: a vector, as no encoder made the index")
