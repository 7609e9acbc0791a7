"""The index stage on Ray Data: route every part, then gather every shard; the manifest comes last."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from rayhier.index.assign import Assigner, leaf_counts, read_part
from rayhier.index.shards import ranges, write_shard
from rayhier.progress import Bar
from rayhier.ray import stream
from rayhier.spec import JobSpec
from rayhier.storage import files, leaf_map, schemas
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Made
from rayhier.storage.leaf_map import LEAVES, Manifest, Shard
from rayhier.storage.ledger import Entry, Ledger

ROUTED = "routed"


class RoutePart:
    """An actor that routes parts of the corpus and writes them below scratch, sorted by leaf."""

    def __init__(self, corpus: str, vectors: str, model: str, scratch: str, precision: str, cpus: int) -> None:
        torch.set_num_threads(cpus)
        self.corpus, self.vectors = Artifact.open(Path(corpus)), Artifact.open(Path(vectors))
        self.assign = Assigner(Artifact.open(Path(model)), precision)
        self.scratch = Path(scratch)
        self.ledger = Ledger(self.scratch / "ledger", self.scratch)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Route the part `row["part"]`; returns how many documents it holds."""
        name = str(row["part"])
        table = self.assign(*read_part(self.corpus.path(name), self.vectors.path(name)))
        file = files.write_parquet(self.scratch / ROUTED, Path(name).name, [table], table.schema)
        counts = leaf_counts(table["leaf"].to_numpy(), self.assign.router.n_leaves)
        entry = Entry((file.model_copy(update={"name": f"{ROUTED}/{file.name}"}),), {"leaves": counts})
        self.ledger.enter(routed_key(name), entry)
        return {"rows": table.num_rows}


class GatherShard:
    """An actor that gathers a leaf range from every routed part into one shard."""

    def __init__(self, root: str, scratch: str, counts: list[int]) -> None:
        self.root, self.counts = Path(root), counts
        self.parts = sorted((Path(scratch) / ROUTED).glob("*.parquet"))
        self.ledger = Ledger(Path(scratch) / "ledger", self.root)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Write the shard of leaves [first, last); returns how many rows it holds."""
        key, first, last = str(row["key"]), int(row["first"]), int(row["last"])
        shard = write_shard(self.root, f"data/{key}.parquet", self.parts, first, last, self.counts)
        self.ledger.enter(key, Entry((shard.file,), {"shard": shard.model_dump(mode="json")}))
        return {"rows": shard.rows}


def build(spec: JobSpec, corpus: Artifact, vectors: Artifact, model: Artifact, attempt: Attempt) -> Made:
    """Write the leaf map of the corpus under a trained model: every document exactly once."""
    documents = int(corpus.record.counts["rows"])
    counts = _route(spec, corpus, vectors, model, attempt, documents)
    shards = _gather(spec, attempt, counts, documents)
    manifest = Manifest(
        version=1,
        parent=None,
        model=model.record.fingerprint,
        dimension=int(vectors.record.counts["dimension"]),
        metric="inner_product",
        vectors=spec.index.vectors,
        documents=documents,
        counts=counts,
        shards=shards,
    )
    leaves = pa.table(
        [np.ones(len(counts), np.int8), np.arange(len(counts), dtype=np.int32), np.array(counts)], schema=schemas.LEAVES
    )
    table = files.write_parquet(attempt.root, LEAVES, [leaves], schemas.LEAVES)
    leaf_map.publish(attempt.root, manifest)
    made = {"documents": sum(counts), "leaves": len(counts), "empty": counts.count(0), "shards": len(shards)}
    return Made(made, (table, *(shard.file for shard in shards)))


def _route(
    spec: JobSpec, corpus: Artifact, vectors: Artifact, model: Artifact, attempt: Attempt, documents: int
) -> list[int]:
    """Route what is not routed yet; returns the documents of every leaf."""
    parts = corpus.names("documents/")
    ledger = Ledger(attempt.scratch / "ledger", attempt.scratch)
    arguments = {
        "corpus": str(corpus.folder),
        "vectors": str(vectors.folder),
        "model": str(model.folder),
        "scratch": str(attempt.scratch),
        "precision": spec.index.vectors,
        "cpus": spec.cluster.index.cpus,
    }
    missing = [name for name in parts if ledger.done(routed_key(name)) is None]
    with Bar("route", documents, "documents") as bar:
        bar.advance(sum(sum(e.counts["leaves"]) for name in parts if (e := ledger.done(routed_key(name)))))
        for row in stream([{"part": name} for name in missing], RoutePart, arguments, spec.cluster.index):
            bar.advance(row["rows"])
    entries = [ledger.done(routed_key(name)) for name in parts]
    sums = np.sum([entry.counts["leaves"] for entry in entries if entry], axis=0)
    counts: list[int] = sums.tolist()
    _whole(attempt, sum(counts), documents)
    return counts


def _gather(spec: JobSpec, attempt: Attempt, counts: list[int], documents: int) -> list[Shard]:
    """Write the shards that are not written yet; returns all of them, by leaf."""
    ledger = Ledger(attempt.scratch / "ledger", attempt.root)
    plan = {f"shard-{number:05d}": cut for number, cut in enumerate(ranges(counts, spec.index.shards))}
    missing = [
        {"key": key, "first": first, "last": last} for key, (first, last) in plan.items() if ledger.done(key) is None
    ]
    arguments = {"root": str(attempt.root), "scratch": str(attempt.scratch), "counts": counts}
    with Bar("gather", documents, "documents") as bar:
        bar.advance(sum(e.counts["shard"]["rows"] for key in plan if (e := ledger.done(key))))
        for row in stream(missing, GatherShard, arguments, spec.cluster.index):
            bar.advance(row["rows"])
    entries: Sequence[Entry | None] = [ledger.done(key) for key in plan]
    shards = [Shard.model_validate(entry.counts["shard"]) for entry in entries if entry]
    _whole(attempt, sum(shard.rows for shard in shards), documents)
    return shards


def _whole(attempt: Attempt, found: int, documents: int) -> None:
    if found != documents:
        raise RuntimeError(f"{attempt.root}: {found} of {documents} documents; nothing is published")


def routed_key(name: str) -> str:
    """The ledger's name of a routed part."""
    return f"{ROUTED}-{Path(name).stem}"
