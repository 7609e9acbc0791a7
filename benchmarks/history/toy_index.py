"""A published index of a few documents, made in seconds without Ray: a tiny random BERT, nine leaves, three shards."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

from rayhier.arrays import Floats, Ints
from rayhier.embed.encode import TextEncoder
from rayhier.index.describe import describe
from rayhier.index.display import DisplayTree
from rayhier.index.shards import write_shard
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.router import route_all, save_router
from rayhier.spec import JobSpec
from rayhier.storage import columns, current, files, schemas
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.leaf_map import LEAVES, LeafMap, Manifest, publish, ranges

WORDS = [f"{tree}{part}" for tree in ("oak", "elm", "fern", "moss") for part in ("", "leaf", "root", "tree", "wood")]
"""Words that many documents have."""
DOCUMENTS, LEAF_COUNT, SHARDS = 120, 9, 3
MODEL, INDEX = "0123456789ab", "ba9876543210"
"""Fingerprints of the two artifacts."""


def documents() -> dict[str, str]:
    """Texts of the documents by their ids; each has a word of its own."""
    return {
        f"d{n}": " ".join([*(WORDS[(n * step + n // 20) % 20] for step in range(1, 6)), f"first{n}"])
        for n in range(DOCUMENTS)
    }


def make(work: Path) -> Path:
    """Publish a model and an index below `work`; returns the folder of the leaf map."""
    encoder = tiny_bert(work / "encoder")
    spec = JobSpec.model_validate(
        {
            "name": "history",
            "workdir": str(work),
            "corpus": {"type": "jsonl", "documents": "nowhere.jsonl"},
            "encoder": {"model": str(encoder), "max_length": 32, "precision": "float32"},
            "router": {"type": "ehi", "branching": LEAF_COUNT},
            "search": {"k": 7, "beam": 2, "hybrid": {"depth": 20, "weight": 0.3}},
            "cluster": {"address": "local"},
        }
    )
    texts = documents()
    vector_NM = TextEncoder(encoder, spec.encoder).encode(list(texts.values()))
    router = EhiRouter(vector_NM.shape[1], LEAF_COUNT, 1, "none")
    router.warm_start(torch.from_numpy(vector_NM[:LEAF_COUNT]))
    with Attempt.start(Place(work / "model" / MODEL)) as attempt:
        root = Path(str(attempt.root))
        save_router(router, root / "router")
        shutil.copytree(encoder, root / "encoder")
        attempt.publish("model", {}, Output({}))
    leaf_N2 = route_all(router, Encoded.of(vector_NM), 2)[0].numpy()
    with Attempt.start(Place(work / "index" / INDEX)) as attempt:
        root = Path(str(attempt.root))
        _write_leaf_map(root, texts, vector_NM, leaf_N2)
        described = describe(LeafMap.open(attempt.root), DisplayTree.of(router))
        files.write_parquet(attempt.root, LEAVES, [described], schemas.LEAVES)
        attempt.publish("index", {"model": MODEL}, Output({}))
    current.write(work, current.Current(spec=spec, artifacts={"model": MODEL, "index": INDEX}))
    return root


def tiny_bert(folder: Path) -> Path:
    """Save a BERT of one layer and 32 dimensions with random weights, in sentence-transformers' layout."""
    folder.mkdir(parents=True)
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *alphabet, *(f"##{letter}" for letter in alphabet), *WORDS]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=64, **shape)).save_pretrained(folder)
    modules = [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def _write_leaf_map(root: Path, texts: dict[str, str], vector_NM: Floats, leaf_N2: Ints) -> None:
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
    counts = np.bincount(leaf, minlength=LEAF_COUNT).tolist()
    shards = []
    for first, last in ranges(counts, SHARDS):
        inside = pc.and_(pc.greater_equal(table["leaf"], first), pc.less(table["leaf"], last))
        shards.append(write_shard(root, f"data/{first}.parquet", [table.filter(inside)], range(first, last), counts))
    manifest = Manifest(
        version=1,
        parent=None,
        model=MODEL,
        metric="inner_product",
        vectors="float32",
        dimension=dimension,
        documents=n,
        leaves_per_document=2,
        counts=counts,
        shards=shards,
    )
    publish(root, manifest)
