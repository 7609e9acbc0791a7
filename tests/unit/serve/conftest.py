"""A workdir with a published model and index, made without Ray: two leaves a document, three shards."""

import shutil

import numpy as np
import pyarrow as pa
import pytest
import torch
from fastapi.testclient import TestClient

from rayhier.embed.encode import TextEncoder
from rayhier.index.describe import describe
from rayhier.index.display import DisplayTree
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.encoder import ResidualHead, save_encoder
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import route_all, save_router
from rayhier.spec import JobSpec
from rayhier.storage import columns, current, files, schemas
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.leaf_map import LEAVES, LeafMap

from .stand_ins import Canned, app_of

N, L = 120, 9
WORDS = [f"{one}{two}" for one in ("oak", "elm", "fern", "moss") for two in ("", "leaf", "root", "tree", "wood")]
TEXTS = [" ".join(WORDS[(n * step + n // 20) % 20] for step in range(1, 7)) for n in range(N)]


MODEL, INDEX = "0123456789ab", "ba9876543210"
OTHER_MODEL, OTHER_INDEX = "abcdef012345", "543210fedcba"


def make_published(
    work,
    tiny_model,
    write_map,
    shards=3,
    model=MODEL,
    index=INDEX,
    head=None,
    before=None,
    router_type="ehi",
    **corpus,
):
    """Publish both artifacts below `work` and make them current; with a `head` [m, m] on the encoder's vectors.

    Leaves of a `router_type` learned_ivf can be split.
    """
    routers = {"ehi": {"type": "ehi", "branching": L}, "learned_ivf": {"type": "learned_ivf"}}
    index_spec = {"vectors": "float32"} if router_type == "learned_ivf" else {}
    spec = JobSpec.model_validate(
        {
            "name": "by-hand",
            "workdir": str(work),
            "corpus": {"type": "jsonl", "documents": "nowhere.jsonl", "fields": {"year": "int"}, **corpus},
            "encoder": {"model": str(tiny_model), "max_length": 32, "precision": "float32"},
            "router": routers[router_type],
            "index": index_spec,
            "search": {"k": 7, "beam": 2},
            "cluster": {"address": "local"},
        }
    )
    with Attempt.start(Place(work / "model" / model)) as attempt:
        if head is None:
            shutil.copytree(tiny_model, attempt.root / "encoder")
        else:
            trained = ResidualHead(len(head))
            trained.weight.data.copy_(torch.from_numpy(head))
            save_encoder(tiny_model, trained, 32, attempt.root / "encoder")
        vectors = TextEncoder(attempt.root / "encoder", spec.encoder).encode(TEXTS)
        router = _router(router_type, torch.from_numpy(vectors[:L]))
        save_router(router, attempt.root / "router")
        attempt.publish("model", {}, Output({}))
    with Attempt.start(Place(work / "index" / index)) as attempt:
        leaves = route_all(router, Encoded.of(vectors), 2)[0].numpy()
        _write_map(attempt.root, vectors, leaves, shards, write_map, model)
        described = describe(LeafMap.open(attempt.root), DisplayTree.of(router))
        files.write_parquet(attempt.root, LEAVES, [described], schemas.LEAVES)
        attempt.publish("index", {"model": model}, Output({}))
    named = {"model": model, "index": index}
    current.write(work, current.Current(spec=spec, artifacts=named, before=before))
    return work


def _router(router_type, centroid_LM):
    if router_type == "ehi":
        router = EhiRouter(centroid_LM.shape[1], L, 1, "none")
        router.warm_start(centroid_LM)
        return router
    router = LearnedIvfRouter(centroid_LM.shape[1], L, 0)
    router.begin(centroid_LM)
    router.cells.border.fill_(0.2)
    return router


def _write_map(root, vectors, leaves, shards, write_map, model):
    schema = schemas.leaf_map(vectors.shape[1], "float32", schemas.documents({"year": "int"}, passages=False))
    rank, row = np.repeat([0, 1], N), np.tile(np.arange(N), 2)
    leaf = leaves[row, rank]
    order = np.argsort(leaf, kind="stable")
    rank, row, leaf = rank[order], row[order], leaf[order]
    table = pa.table(
        [
            [f"d{n}" for n in row],
            pa.array(leaf, pa.int32()),
            pa.array(rank, pa.int8()),
            pa.array(leaves[row].tolist(), pa.list_(pa.int32())),
            pa.array([0.0] * len(row), pa.float32()),
            columns.vector_column(vectors[row], pa.float32()),
            [f"title {n}" for n in row],
            [TEXTS[n] for n in row],
            pa.array(1900 + row, pa.int64()),
        ],
        schema=schema,
    )
    write_map(root, table, L, shards, model=model, leaves_per_document=2)


@pytest.fixture(scope="session")
def published(tmp_path_factory, tiny_model, write_map):
    """Not to be changed by a test."""
    return make_published(tmp_path_factory.mktemp("served"), tiny_model, write_map)


@pytest.fixture
def damageable(published, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(published, tmp_path / "work")


@pytest.fixture
def engine():
    """An engine that is a list of canned answers."""
    return Canned()


@pytest.fixture
def client(engine):
    """A client of the HTTP application over that engine."""
    return TestClient(app_of(engine), raise_server_exceptions=False)
