"""A small published leaf map and a searcher over it, whose texts are numbers of documents."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.search.routing.routes import Model
from rayhier.search.snapshot import Snapshot
from rayhier.spec import JobSpec
from rayhier.storage import columns, schemas
from rayhier.storage.leaf_map import LeafMap

N, M, L = 60, 8, 6
SPEC = {
    "name": "test",
    "workdir": "work",
    "corpus": {"type": "python_docs"},
    "encoder": {"model": "package:none"},
    "router": {"type": "learned_ivf"},
    "search": {"k": 7, "beam": 2},
}


class Words:
    """An encoder of texts that are numbers: the vector of that document."""

    def __init__(self, vectors):
        self.vectors = vectors

    def encode_for(self, reader, texts):
        assert reader is None
        return Encoded(self.vectors[[int(text) for text in texts]])


def open_searcher(vectors, router, leaf_map, **search):
    """A searcher over texts that are numbers."""
    spec = JobSpec.model_validate({**SPEC, "search": {**SPEC["search"], **search}})
    return Snapshot(spec, leaf_map, Model(router, lambda: Words(vectors), spec))


@pytest.fixture(scope="module")
def vectors():
    found = np.random.default_rng(0).normal(size=(N, M)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def router(vectors):
    made = EhiRouter(M, L, 1, "none")
    made.warm_start(torch.from_numpy(vectors[:L]))
    return made


@pytest.fixture(scope="module")
def leaf_of(vectors):
    """Leaf 0 stays empty: its documents go to leaf 1."""
    return np.maximum((vectors @ vectors[:L].T).argmax(axis=1), 1)


def leaf_table(vectors, leaf_of):
    """Rows of the leaf map, one leaf a document."""
    schema = schemas.leaf_map(M, "float32")
    return pa.table(
        [
            [f"d{row}" for row in range(N)],
            pa.array(leaf_of, pa.int32()),
            pa.array([0] * N, pa.int8()),
            [[leaf] for leaf in leaf_of.tolist()],
            pa.array([0.0] * N, pa.float32()),
            columns.vector_column(vectors, pa.float32()),
            [f"title {row}" for row in range(N)],
            [f"text {row}" for row in range(N)],
        ],
        schema=schema,
    )


@pytest.fixture(scope="module")
def leaf_map(vectors, leaf_of, tmp_path_factory, write_map):
    root = tmp_path_factory.mktemp("map")
    table = leaf_table(vectors, leaf_of)
    write_map(root, table, L, 3)
    return LeafMap.open(root)


@pytest.fixture(scope="module")
def searcher(vectors, router, leaf_map):
    return open_searcher(vectors, router, leaf_map)
