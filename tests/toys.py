"""Models and leaf maps made in moments, for tests of whatever reads them."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def evaluated(*arguments: Any, **named: Any) -> Any:
    """Return the Evaluation of `evaluate`, whose systems are not told."""
    from rayhier.evaluate.evaluation import evaluate

    systems = evaluate(*arguments, **named)
    while True:
        try:
            next(systems)
        except StopIteration as ended:
            return ended.value


def job(**sections: object) -> object:
    """Make the least spec with some sections."""
    from rayhier.spec import JobSpec

    least = {"name": "t", "workdir": "w", "corpus": {"type": "python_docs"}, "encoder": {"model": "package:none"}}
    return JobSpec.model_validate(least | sections)


def tiny_bert(folder: Path, words: Sequence[str], seed: int = 0, width: int = 32) -> Path:
    """Save a BERT of one layer and `width` dimensions with random weights, in sentence-transformers' layout."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *alphabet, *(f"##{letter}" for letter in alphabet), *words]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(seed)
    shape = {"hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=64, **shape)).save_pretrained(folder)
    modules = [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def tiny_t5(folder: Path, words: Sequence[str]) -> Path:
    """Save a T5 encoder of two layers and 32 dimensions, with a tokenizer of unigrams, as the hub's GTR is saved."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import T5Config, T5EncoderModel, T5TokenizerFast

    letters = [(letter, -4.0) for letter in "abcdefghijklmnopqrstuvwxyz0123456789:"]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -9.0), ("▁", -2.0), *letters, *((f"▁{w}", -3.0) for w in words)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    T5TokenizerFast(tokenizer_object=tokenizer, extra_ids=0).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"d_model": 32, "num_layers": 2, "num_heads": 2, "d_kv": 16, "d_ff": 64}
    T5EncoderModel(T5Config(vocab_size=len(pieces), **shape)).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"is_encoder_decoder": True}))
    return folder


def publish(
    work: Path,
    spec: Any,
    encoder: Path,
    router_of: Callable[[Any], Any],
    documents: pa.Table,
    model: str,
    index: str,
    shards: int = 3,
    **inputs: str,
) -> Any:
    """Publish a model and its index below `work`; returns what names them, which is not current yet.

    The router is made of the documents' vectors; leaves hold float32.
    """
    import torch

    from rayhier.embed.encode import TextEncoder
    from rayhier.index.assign import Assigner
    from rayhier.index.describe import describe
    from rayhier.index.display import DisplayTree
    from rayhier.model.encoded import Encoded
    from rayhier.model.router import opened, save_router
    from rayhier.storage import parquet, schemas
    from rayhier.storage.artifact import Place
    from rayhier.storage.attempt import Attempt, Output
    from rayhier.storage.current import Current
    from rayhier.storage.leaf_map import LEAVES, LeafMap

    vector_NM = TextEncoder(encoder, spec.encoder).encode(documents["text"].to_pylist())
    router = router_of(torch.from_numpy(vector_NM))
    trained = opened(router)
    with Attempt.start(Place(work / "model" / model)) as attempt:
        shutil.copytree(encoder, attempt.root / "encoder")
        save_router(router, attempt.root / "router")
        attempt.publish("model", {}, Output({}))
    stored = spec.index.model_copy(update={"vectors": "float32", "leaves_per_document": 2})
    rows = Assigner(trained, spec.model_copy(update={"index": stored}))(documents, Encoded(vector_NM))
    with Attempt.start(Place(work / "index" / index)) as attempt:
        write_map(attempt.root, rows, router.n_leaves, shards, model=model, leaves_per_document=2)
        described = describe(LeafMap.open(attempt.root), DisplayTree.of(trained))
        parquet.write(attempt.root, LEAVES, [described], schemas.LEAVES)
        attempt.publish("index", {"model": model, **inputs}, Output({}))
    return Current(spec=spec, artifacts={"model": model, "index": index})


def artifact(folder: Path, kind: str, tables: Mapping[str, pa.Table] | None = None, **counts: object) -> object:
    """Publish tables as parquet files of an artifact whose record has these counts."""
    from rayhier.storage import files, parquet
    from rayhier.storage.artifact import Artifact, Record
    from rayhier.storage.files import seal

    made = [parquet.write(folder / "a", name, [table], table.schema) for name, table in (tables or {}).items()]
    about = {"fingerprint": "f", "attempt": "a", "inputs": {}, "versions": {}, "seconds": 0}
    record = Record(kind=kind, files=made, counts=counts, **about)
    files.replace(folder / "record.json", seal(record.model_dump(mode="json")))
    return Artifact(folder, record)


def write_map(root: Path, table: pa.Table, leaves: int, shards: int, **own: object) -> object:
    """Publish rows as version 1 of a leaf map; returns its manifest, of which `own` says more."""
    from rayhier.index.shards import write_shard
    from rayhier.storage.leaf_map import Manifest, publish, ranges

    counts = np.bincount(table["leaf"].to_numpy(), minlength=leaves).tolist()
    made = []
    for first, last in ranges(counts, shards):
        inside = pc.and_(pc.greater_equal(table["leaf"], first), pc.less(table["leaf"], last))
        made.append(write_shard(root, f"data/{first}.parquet", [table.filter(inside)], range(first, last), counts))
    m = table.schema.field("vector").type.dimension
    vectors = {"halffloat": "float16", "float": "float32"}[str(table.schema.field("vector").type.value_type)]
    fixed = {"version": 1, "parent": None, "model": "m", "metric": "inner_product", "vectors": vectors}
    documents = int(pc.sum(pc.equal(table["rank"], 0)).as_py())
    manifest = Manifest(**fixed | {"dimension": m, "documents": documents} | own, counts=counts, shards=made)
    publish(root, manifest)
    return manifest


def embedded(key: str, ids: Sequence[str], matrix: np.ndarray) -> pa.Table:
    """Vectors [n, m] of documents or queries, as the vectors artifact holds them."""
    from rayhier.storage import columns, schemas

    column = columns.vector_column(matrix, pa.float32())
    return pa.table([ids, column], schema=schemas.vectors(key, matrix.shape[1]))


def judgements(rows: Sequence[tuple[str, str, int]]) -> pa.Table:
    """Judgements: query, document and grade."""
    from rayhier.storage import schemas

    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * 3, schema=schemas.JUDGEMENTS)
