"""The index stage on Ray Data: route every part, give second leaves where asked, gather every shard, commit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from rayhier.cluster.spill import CANDIDATES, Spill
from rayhier.index.assign import Assigner, LeafMeans, leaf_counts, read_part, spread
from rayhier.index.shards import ranges, write_shard
from rayhier.progress import Bar
from rayhier.ray import stream
from rayhier.spec import JobSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import columns, files, leaf_map, schemas
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Made
from rayhier.storage.leaf_map import LEAVES, Manifest, Shard
from rayhier.storage.ledger import Entry, Ledger
from rayhier.storage.paths import Location, locate

ROUTED, SPREAD = "routed", "spread"
MEANS = "means.parquet"
SAMPLE = 256
"""Documents a leaf whose mean stands for the leaf."""


class RoutePart:
    """An actor that routes parts of the corpus and writes them below scratch, sorted by leaf."""

    def __init__(
        self,
        corpus: str,
        vectors: str,
        model: str,
        encoder: dict[str, Any],
        scratch: str,
        precision: str,
        candidates: int,
        spill: Spill,
        cpus: int,
    ) -> None:
        torch.set_num_threads(cpus)
        self.corpus, self.vectors = Artifact.open(locate(corpus)), Artifact.open(locate(vectors))
        self.assign = Assigner(Artifact.open(locate(model)), EncoderSpec(**encoder), precision, candidates)
        self.spill = spill
        self.scratch = locate(scratch)
        self.ledger = Ledger(self.scratch / "ledger", self.scratch)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Route the part `row["part"]`, with its second leaves where the router's cells choose them."""
        name, cells = str(row["part"]), self.assign.router.cells
        routed = self.assign(*read_part(self.corpus.path(name), self.vectors.path(name)))
        table = routed
        if cells is not None and self.assign.candidates > 1:
            table = spread(routed, cells.centroid_LM.numpy(), self.spill, cells.price_L.numpy(), cells.border)
        file = files.write_parquet(self.scratch / ROUTED, Path(name).name, [table], table.schema)
        counts = leaf_counts(table["leaf"].to_numpy(), self.assign.router.n_leaves)
        made = {"leaves": counts, "documents": routed.num_rows}
        entry = Entry((file.model_copy(update={"name": f"{ROUTED}/{file.name}"}),), made)
        self.ledger.enter(part_key(ROUTED, name), entry)
        return {"rows": routed.num_rows}


class SpreadPart:
    """An actor that gives the documents of routed parts their second leaves."""

    def __init__(self, scratch: str, leaves: int, spill: Spill) -> None:
        self.scratch, self.leaves, self.spill = locate(scratch), leaves, spill
        self.centroids_LM = columns.matrix(columns.read([self.scratch / MEANS], ["vector"])["vector"])
        self.ledger = Ledger(self.scratch / "ledger", self.scratch)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Spread the part `row["part"]`; returns how many documents it holds."""
        name = Path(str(row["part"])).name
        routed = files.read_table(self.scratch / ROUTED / name)
        table = spread(routed, self.centroids_LM, self.spill)
        file = files.write_parquet(self.scratch / SPREAD, name, [table], table.schema)
        entry = Entry(
            (file.model_copy(update={"name": f"{SPREAD}/{file.name}"}),),
            {"leaves": leaf_counts(table["leaf"].to_numpy(), self.leaves), "documents": routed.num_rows},
        )
        self.ledger.enter(part_key(SPREAD, name), entry)
        return {"rows": routed.num_rows}


class GatherShard:
    """An actor that gathers a leaf range from every part below `folder` into one shard."""

    def __init__(self, root: str, scratch: str, folder: str, counts: list[int]) -> None:
        self.root, self.counts = locate(root), counts
        self.parts: list[Location] = sorted((locate(scratch) / folder).glob("*.parquet"), key=str)
        self.ledger = Ledger(locate(scratch) / "ledger", self.root)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Write the shard of leaves [first, last); returns how many rows it holds."""
        key, first, last = str(row["key"]), int(row["first"]), int(row["last"])
        shard = write_shard(self.root, f"data/{key}.parquet", self.parts, first, last, self.counts)
        self.ledger.enter(key, Entry((shard.file,), {"shard": shard.model_dump(mode="json")}))
        return {"rows": shard.rows}


def build(spec: JobSpec, corpus: Artifact, vectors: Artifact, model: Artifact, attempt: Attempt) -> Made:
    """Write the leaf map of the corpus under a trained model: every document exactly once in each of its leaves."""
    documents = int(corpus.record.counts["rows"])
    # A taught router knows the centroids that second leaves are chosen by; a joint one's are means of what is routed.
    twice = spec.leaves_per_document > 1 and spec.router.training == "joint"
    folder, counts = ROUTED, _route(spec, corpus, vectors, model, attempt, documents)
    if twice:
        folder, counts = SPREAD, _spread(spec, corpus, attempt, counts)
    shards = _gather(spec, attempt, folder, counts)
    manifest = Manifest(
        version=1,
        parent=None,
        model=model.record.fingerprint,
        dimension=int(vectors.record.counts["dimension"]),
        metric="inner_product",
        vectors=spec.index.vectors,
        documents=documents,
        leaves_per_document=spec.leaves_per_document,
        counts=counts,
        shards=shards,
    )
    leaves = pa.table(
        [np.ones(len(counts), np.int8), np.arange(len(counts), dtype=np.int32), np.array(counts)], schema=schemas.LEAVES
    )
    table = files.write_parquet(attempt.root, LEAVES, [leaves], schemas.LEAVES)
    leaf_map.publish(attempt.root, manifest)
    made = {
        "documents": documents,
        "rows": sum(counts),
        "leaves": len(counts),
        "empty": counts.count(0),
        "shards": len(shards),
    }
    return Made(made, (table, *(shard.file for shard in shards)))


def _route(
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    model: Artifact,
    attempt: Attempt,
    documents: int,
) -> list[int]:
    """Route what is not routed yet; returns the rows of every leaf."""
    parts = corpus.names("documents/")
    ledger = Ledger(attempt.scratch / "ledger", attempt.scratch)
    arguments = {
        "corpus": str(corpus.folder),
        "vectors": str(vectors.folder),
        "model": str(model.folder),
        "encoder": spec.encoder.model_dump(mode="json"),
        "scratch": str(attempt.scratch),
        "precision": spec.index.vectors,
        "candidates": CANDIDATES if spec.leaves_per_document > 1 else 1,
        "spill": spec.index.second_leaf,
        "cpus": spec.cluster.index.cpus,
    }
    missing = [name for name in parts if ledger.done(part_key(ROUTED, name)) is None]
    with Bar("route", documents, "documents") as bar:
        bar.advance(sum(e.counts["documents"] for name in parts if (e := ledger.done(part_key(ROUTED, name)))))
        for row in stream([{"part": name} for name in missing], RoutePart, arguments, spec.cluster.index):
            bar.advance(row["rows"])
    return _leaf_counts(attempt, ledger, ROUTED, parts, documents)


def _spread(spec: JobSpec, corpus: Artifact, attempt: Attempt, counts: list[int]) -> list[int]:
    """Give every document its second leaf; returns the rows of every leaf."""
    parts = corpus.names("documents/")
    ledger = Ledger(attempt.scratch / "ledger", attempt.scratch)
    _write_means(attempt.scratch, len(counts), [attempt.scratch / ROUTED / Path(name).name for name in parts])
    missing = [name for name in parts if ledger.done(part_key(SPREAD, name)) is None]
    arguments = {"scratch": str(attempt.scratch), "leaves": len(counts), "spill": spec.index.second_leaf}
    with Bar("second leaves", sum(counts), "documents") as bar:
        for row in stream([{"part": name} for name in missing], SpreadPart, arguments, spec.cluster.index):
            bar.advance(row["rows"])
    return _leaf_counts(attempt, ledger, SPREAD, parts, sum(counts))


def _write_means(scratch: Location, leaves: int, routed: Sequence[Location]) -> None:
    """Mean vector of each leaf, of the first `SAMPLE` documents a leaf."""
    means: LeafMeans | None = None
    for path in routed:
        table = columns.read([path], ["leaf", "vector"])
        means = means or LeafMeans(leaves, table.schema.field("vector").type.list_size)
        means.add(columns.matrix(table["vector"]), table["leaf"].to_numpy())
        if means.rows >= SAMPLE * leaves:
            break
    if means is not None:
        column = columns.vector_column(means.means(), pa.float32())
        table = pa.table({"vector": column})
        files.write_parquet(scratch, MEANS, [table], table.schema)


def _leaf_counts(attempt: Attempt, ledger: Ledger, kind: str, parts: Sequence[str], documents: int) -> list[int]:
    """Rows of every leaf; RuntimeError where not every document was routed."""
    entries = [entry for name in parts if (entry := ledger.done(part_key(kind, name)))]
    _whole(attempt, sum(entry.counts["documents"] for entry in entries), documents, "documents")
    counts: list[int] = np.sum([entry.counts["leaves"] for entry in entries], axis=0).tolist()
    return counts


def _gather(spec: JobSpec, attempt: Attempt, folder: str, counts: list[int]) -> list[Shard]:
    """Write the shards that are not written yet; returns all of them, by leaf."""
    rows = sum(counts)
    ledger = Ledger(attempt.scratch / "ledger", attempt.root)
    plan = {f"shard-{number:05d}": cut for number, cut in enumerate(ranges(counts, spec.index.shards))}
    missing = [
        {"key": key, "first": first, "last": last} for key, (first, last) in plan.items() if ledger.done(key) is None
    ]
    arguments = {"root": str(attempt.root), "scratch": str(attempt.scratch), "folder": folder, "counts": counts}
    with Bar("gather", rows, "rows") as bar:
        bar.advance(sum(e.counts["shard"]["rows"] for key in plan if (e := ledger.done(key))))
        for row in stream(missing, GatherShard, arguments, spec.cluster.index):
            bar.advance(row["rows"])
    entries: Sequence[Entry | None] = [ledger.done(key) for key in plan]
    shards = [Shard.model_validate(entry.counts["shard"]) for entry in entries if entry]
    _whole(attempt, sum(shard.rows for shard in shards), rows, "rows")
    return shards


def _whole(attempt: Attempt, found: int, expected: int, what: str) -> None:
    if found != expected:
        raise RuntimeError(f"{attempt.root}: {found} of {expected} {what}; nothing is published")


def part_key(kind: str, name: str) -> str:
    """The ledger's name of a routed or spread part."""
    return f"{kind}-{Path(name).stem}"
