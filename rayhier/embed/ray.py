"""The embed stage on Ray Data: a pool of encoders, one part of the corpus at a time."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from rayhier.embed.encode import TextEncoder, document_texts
from rayhier.model.encoder import Encoder
from rayhier.progress import Bar
from rayhier.ray import stream
from rayhier.spec import JobSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import columns, files, schemas
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Made
from rayhier.storage.ledger import Entry, Ledger
from rayhier.storage.model_folder import ModelFolder
from rayhier.storage.paths import locate

QUERIES = "queries.parquet"


class EmbedPart:
    """An actor that encodes parts: reads texts of `corpus`, writes vectors below `root`."""

    def __init__(self, model: str, spec: dict[str, Any], corpus: str, root: str, ledger: str, cpus: int) -> None:
        torch.set_num_threads(cpus)
        os.environ["RAYON_NUM_THREADS"] = str(cpus)  # the tokenizer's threads, read when it first runs
        self.corpus, self.root = locate(corpus), locate(root)
        self.ledger = Ledger(locate(ledger), self.root)
        self.encoder = TextEncoder(Path(model), EncoderSpec(**spec))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Encode the part `row["part"]`; returns how many texts it holds."""
        name = str(row["part"])
        key = "query_id" if name == QUERIES else "doc_id"
        table = columns.read([self.corpus / name], [key, "text"] if name == QUERIES else [key, "title", "text"])
        texts = table["text"].to_pylist() if name == QUERIES else document_texts(table)
        vectors = self.encoder.encode(texts)
        schema = schemas.vectors(key, self.encoder.dimension)
        column = columns.vector_column(vectors, pa.float32())
        made = files.write_parquet(self.root, name, [pa.table([table[key], column], schema=schema)], schema)
        precision = str(self.encoder.dtype).removeprefix("torch.")
        self.ledger.enter(ledger_key(name), Entry((made,), {"rows": len(texts), "precision": precision}))
        return {"rows": len(texts)}


def build(spec: JobSpec, model: ModelFolder, corpus: Artifact, attempt: Attempt) -> Made:
    """Encode every document and query of `corpus` with the base encoder."""
    # What is wrong with the folder is said here, not by an actor; what cannot train, before hours of encoding.
    encoder = Encoder(model.path, torch.float32)
    if spec.encoder.train != "head":
        encoder.trainable(spec.encoder.train)
    names = [*corpus.names("documents/"), QUERIES]
    ledger = Ledger(attempt.scratch / "ledger", attempt.root)
    missing = [name for name in names if ledger.done(ledger_key(name)) is None]
    total = corpus.record.counts["rows"] + corpus.record.counts["queries"]["accepted"]
    arguments = {
        "model": str(model.path),
        "spec": spec.encoder.model_dump(mode="json"),
        "corpus": str(corpus.root),
        "root": str(attempt.root),
        "ledger": str(ledger.folder),
        "cpus": spec.cluster.embed.cpus,
    }
    with Bar("embed", total, "texts") as bar:
        bar.advance(sum(entry.counts["rows"] for name in names if (entry := ledger.done(ledger_key(name)))))
        for row in stream([{"part": name} for name in missing], EmbedPart, arguments, spec.cluster.embed):
            bar.advance(row["rows"])
    entries = [entry for name in names if (entry := ledger.done(ledger_key(name)))]
    rows = sum(entry.counts["rows"] for entry in entries)
    if rows != total:
        raise RuntimeError(f"{attempt.root}: {rows} vectors of {total} texts")
    counts = {
        "vectors": rows,
        "dimension": model.dimension,
        "precision": sorted({entry.counts["precision"] for entry in entries}),
    }
    return Made(counts, tuple(file for entry in entries for file in entry.files))


def ledger_key(name: str) -> str:
    """The name of a part's entry."""
    return name.replace("/", "-")
