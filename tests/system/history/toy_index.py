"""Two models of a corpus of a few documents with an index each, made in seconds without Ray.

Models are tiny random BERTs; an index has nine leaves, which the Writer splits as documents move, and three shards.
"""

from pathlib import Path

import pyarrow as pa
import torch

from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.spec import JobSpec
from rayhier.storage import current, parquet, schemas
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.current import Current
from tests.toys import publish, tiny_bert

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
    schema = schemas.documents({}, passages=False)
    rows = [{"doc_id": name, "title": "", "text": text} for name, text in documents().items()]
    table = pa.Table.from_pylist(rows, schema)
    with Attempt.start(Place(work / "corpus" / CORPUS)) as attempt:
        parquet.write(attempt.root, "documents/0.parquet", [table], schema)
        attempt.publish("corpus", {}, Output({}))
    nows = [_make(work, table, seed, *names) for seed, names in enumerate(MODELS.items())]
    current.write(work, nows[0])
    return nows


def _make(work: Path, table: pa.Table, seed: int, model: str, index: str) -> Current:
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
    now: Current = publish(work, spec, encoder, _router, table, model, index, SHARDS, corpus=CORPUS)
    return now


def _router(vector_NM: torch.Tensor) -> LearnedIvfRouter:
    router = LearnedIvfRouter(vector_NM.shape[1], LEAF_COUNT, rank=1)
    router.begin(vector_NM[:LEAF_COUNT])
    return router
