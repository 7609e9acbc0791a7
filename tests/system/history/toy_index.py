"""Two models of a corpus of a few documents with an index each, made in seconds without Ray.

Models are tiny random BERTs; an index has nine leaves, which the Writer splits as documents move, and three shards.
"""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from rayhier.arrays import Floats, Ints
from rayhier.embed.encode import TextEncoder
from rayhier.index.describe import describe
from rayhier.index.display import DisplayTree
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import route_all, save_router
from rayhier.spec import JobSpec
from rayhier.storage import columns, current, files, schemas
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import LEAVES, LeafMap
from tests.toys import tiny_bert, write_map

TREES = ("oak", "elm", "fern", "moss")
WORDS = [f"{tree}{part}" for tree in TREES for part in ("", "leaf", "root", "tree", "wood")]
"""Words that many documents have."""
DOCUMENTS, LEAF_COUNT, SHARDS = 120, 9, 3
CORPUS = "c0c0c0c0c0c0"
MODELS = {"0123456789ab": "ba9876543210", "abcdef012345": "543210fedcba"}
"""Fingerprints of the models, and of their indexes."""


def documents() -> dict[str, str]:
    """Texts of the documents by their ids; each has a word of its own."""
    return {
        f"d{n}": " ".join([*(WORDS[(n * step + n // 20) % 20] for step in range(1, 6)), f"first{n}"])
        for n in range(DOCUMENTS)
    }


def make(work: Path) -> list[Current]:
    """Publish the corpus, models and indexes below `work`, and make the first current; returns what names each."""
    with Attempt.start(Place(work / "corpus" / CORPUS)) as attempt:
        schema = schemas.documents({}, passages=False)
        rows = [{"doc_id": name, "title": "", "text": text} for name, text in documents().items()]
        files.write_parquet(attempt.root, "documents/0.parquet", [pa.Table.from_pylist(rows, schema)], schema)
        attempt.publish("corpus", {}, Output({}))
    nows = [_make(work, seed, model, index) for seed, (model, index) in enumerate(MODELS.items())]
    current.write(work, nows[0])
    return nows


def _make(work: Path, seed: int, model: str, index: str) -> Current:
    """Publish a model with random weights, and its index."""
    encoder = tiny_bert(work / f"encoder-{seed}", WORDS, seed)
    spec = JobSpec.model_validate(
        {
            "name": "history",
            "workdir": str(work),
            "corpus": {"type": "jsonl", "documents": "nowhere.jsonl"},
            "encoder": {"model": str(encoder), "max_length": 32, "precision": "float32"},
            "index": {"vectors": "float32"},
            "router": {"type": "learned_ivf", "branching": LEAF_COUNT},
            "search": {"k": 7, "beam": 2, "hybrid": {"weight": 0.3}},
            "cluster": {"address": "local"},
        }
    )
    texts = documents()
    vector_NM = TextEncoder(encoder, spec.encoder).encode(list(texts.values()))
    router = LearnedIvfRouter(vector_NM.shape[1], LEAF_COUNT, rank=1)
    router.begin(torch.from_numpy(vector_NM[:LEAF_COUNT]))
    with Attempt.start(Place(work / "model" / model)) as attempt:
        root = Path(str(attempt.root))
        save_router(router, root / "router")
        shutil.copytree(encoder, root / "encoder")
        attempt.publish("model", {}, Output({}))
    leaf_N2 = route_all(router, Encoded.of(vector_NM), 2)[0].numpy()
    with Attempt.start(Place(work / "index" / index)) as attempt:
        root = Path(str(attempt.root))
        _write_leaf_map(root, texts, vector_NM, leaf_N2, model)
        described = describe(LeafMap.open(attempt.root), DisplayTree.of(router))
        files.write_parquet(attempt.root, LEAVES, [described], schemas.LEAVES)
        attempt.publish("index", {"corpus": CORPUS, "model": model}, Output({}))
    return Current(spec=spec, artifacts={"model": model, "index": index})


def _write_leaf_map(root: Path, texts: dict[str, str], vector_NM: Floats, leaf_N2: Ints, model: str) -> None:
    """Write each document to its two leaves, as version 1."""
    n, dimension = vector_NM.shape
    rank, row = np.repeat([0, 1], n), np.tile(np.arange(n), 2)
    leaf = leaf_N2[row, rank]
    ids = list(texts)
    table = pa.table(
        [
            [ids[place] for place in row],
            pa.array(leaf, pa.int32()),
            pa.array(rank, pa.int8()),
            pa.array(leaf_N2[row].tolist(), pa.list_(pa.int32())),
            pa.array([0.0] * len(row), pa.float32()),
            columns.vector_column(vector_NM[row], pa.float32()),
            [""] * len(row),
            [texts[ids[place]] for place in row],
        ],
        schema=schemas.leaf_map(dimension, "float32", schemas.documents({}, passages=False)),
    )
    write_map(root, table, LEAF_COUNT, SHARDS, model=model, leaves_per_document=2)
