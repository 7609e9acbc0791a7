"""The generate stage: reads a file of pairs in this process, or lets models on Ray write queries part by part."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from rayhier.corpus import tables
from rayhier.dataset.documents import document_texts
from rayhier.dataset.holdout import hash_ids
from rayhier.generate.generator import SEED, Generator
from rayhier.generate.pairs import Source, check_written, named_by, read_file, write
from rayhier.model.precision import resolve_device
from rayhier.progress import Bar, here, say
from rayhier.ray import stream
from rayhier.spec import InputError, JobSpec
from rayhier.spec.encoder import Device
from rayhier.spec.train import PairFile, QueryModel
from rayhier.storage import columns, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import SCRATCH, Attempt, Output
from rayhier.storage.ledger import Ledger, LedgerEntry
from rayhier.storage.pair_source import ALLOWED, FILE, MODEL, PairSource
from rayhier.storage.paths import locate

WRITTEN = pa.schema([("doc_id", pa.string()), ("query", pa.string())])
"""Columns of the queries that a model wrote for a part of the corpus; of a passage, `doc_id` is its document's id."""


class GeneratePart:
    """A Ray actor that writes queries for parts: it reads documents of `corpus` and writes files below `root`."""

    def __init__(
        self,
        model: str,
        spec: dict[str, Any],
        device: Device,
        corpus: str,
        root: str,
        ledger: str,
        cpus: int,
        last: int | None,
    ) -> None:
        """Load the model; `last` is the largest hash of the documents to write queries for, None for all documents."""
        torch.set_num_threads(cpus)
        os.environ["RAYON_NUM_THREADS"] = str(cpus)  # the tokenizer's threads, read when it first runs
        self.corpus, self.root = locate(corpus), locate(root)
        self.ledger = Ledger(locate(ledger), self.root)
        self.spec, self.last = QueryModel(**spec), last
        self.generator = Generator(Path(model), self.spec, resolve_device(device))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Write the queries for the part `row["part"]`; returns the number of documents in the part."""
        name = str(row["part"])
        path = self.corpus / name
        key = named_by(path)
        table = columns.read([path], list(dict.fromkeys(["doc_id", "title", "text", key])))
        drawn = table if self.last is None else table.filter(pa.array(self._ranks(table) <= self.last))
        queries = self.generator(drawn["doc_id"].to_pylist(), document_texts(drawn))
        ids = [name for name, texts in zip(drawn[key].to_pylist(), queries, strict=True) for _ in texts]
        written_pairs = pa.table([ids, [query for texts in queries for query in texts]], schema=WRITTEN)
        file = files.write_parquet(self.root, written(name), [written_pairs], WRITTEN)
        self.ledger.enter(ledger_key(name), LedgerEntry((file,), {"documents": len(table)}))
        return {"documents": len(table)}

    def _ranks(self, table: pa.Table) -> Any:
        return hashes(table["doc_id"].to_pylist(), SEED)


def build(spec: JobSpec, source: PairSource, corpus: Artifact, attempt: Attempt) -> Output:
    """Read a file of pairs, or write queries for documents of `corpus`; InputError where no pair is accepted."""
    match spec.train.generation:
        case PairFile():
            sources = [read_file(source.path, corpus, spec.corpus.limits)]
            key, allowed = f"{FILE}: {source.path}", ALLOWED
        case QueryModel() as model:
            sources = _written(spec, model, source, corpus, attempt)
            key, allowed = f"{MODEL}: {model.model}", "a model that writes queries"
        case _:
            raise AssertionError("planned only with train.generated")
    output = write(attempt.root, sources)
    counts = output.counts["pairs"]
    summary = tables.line(counts)
    if not counts["accepted"]:
        raise InputError(f"{key}: no pair accepted ({summary}); allowed: {allowed}")
    say(f"  generated pairs: {summary}")
    say(f"  generated queries: {output.counts['queries']:,}, for {output.counts['documents']:,} documents")
    if counts["rejected"]:
        say(f"  rejected rows: {here(attempt.root / tables.REJECTED)}")
    return output


def _written(spec: JobSpec, model: QueryModel, source: PairSource, corpus: Artifact, attempt: Attempt) -> list[Source]:
    """Let actors write the missing parts; returns the pairs of all parts, also those of an earlier run."""
    Generator(source.path, model, torch.device("cpu"))  # report a wrong folder here, not in an actor
    names = corpus.names("documents/")
    ledger = Ledger(attempt.scratch / "ledger", attempt.root)
    missing = [name for name in names if ledger.done(ledger_key(name)) is None]
    arguments = {
        "model": str(source.path),
        "spec": model.model_dump(),
        "device": spec.encoder.device,
        "corpus": str(corpus.root),
        "root": str(attempt.root),
        "ledger": str(ledger.folder),
        "cpus": spec.cluster.embed.cpus,
        "last": last_hash(corpus, model.most, SEED),
    }
    with Bar("generate", int(corpus.record.counts["rows"]), "documents") as bar:
        done = (ledger.done(ledger_key(name)) for name in names)
        bar.advance(sum(entry.counts["documents"] for entry in done if entry))
        for row in stream([{"part": name} for name in missing], GeneratePart, arguments, spec.cluster.embed):
            bar.advance(row["documents"])
    parts = ((name, files.read_table(attempt.root / written(name))) for name in names)
    return check_written(parts, spec.corpus.limits)


def written(name: str) -> str:
    return f"{SCRATCH}/written/{name.removeprefix('documents/')}"


def ledger_key(name: str) -> str:
    return name.replace("/", "-")


def hashes(ids: Sequence[str], seed: int) -> npt.NDArray[np.uint64]:
    """Hash the seed and the id of each row, [n]: the first by this hash are drawn, whatever the corpus's order."""
    return hash_ids([f"{seed}\0{name}" for name in ids])


def last_hash(corpus: Artifact, most: int, seed: int) -> int | None:
    """Return the largest hash of the `most` rows that are drawn; None where all rows are drawn."""
    if int(corpus.record.counts["rows"]) <= most:
        return None
    first = np.empty(0, np.uint64)
    for name in corpus.names("documents/"):
        hash_N = hashes(columns.read([corpus.path(name)], ["doc_id"])["doc_id"].to_pylist(), seed)
        first = np.concatenate([first, hash_N])
        if len(first) > most:
            first = np.partition(first, most - 1)[:most]
    return int(first.max())
