"""The index stage: route each part of the corpus, limit leaf sizes, gather shards, publish."""

import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats
from rayhier.dataset.documents import document_texts, language
from rayhier.embed.clock import Clock, Utilisation
from rayhier.embed.encode import TextEncoder
from rayhier.embed.precision import agreed, as_embedded
from rayhier.embed.saved import SavedVectors
from rayhier.executor import Actor, Executor, Pool, Row
from rayhier.index import leaf_limit
from rayhier.index.assign import Assigner, leaf_sizes, read_part
from rayhier.index.describe import DescribeShard, table
from rayhier.index.display import DisplayTree
from rayhier.index.shards import DivideParts, GatherShard, shard_count
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import open_router
from rayhier.progress import Bar, log
from rayhier.search.routing.routes import Model
from rayhier.spec import InputError, JobSpec
from rayhier.spec.cluster import Workers
from rayhier.spec.corpus import Language
from rayhier.spec.index import LEAF_FACTOR
from rayhier.storage import files, leaf_map, parquet, schemas
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.leaf_map import BUILT, LEAVES, LeafMap, Manifest, ranges
from rayhier.storage.ledger import Ledger, LedgerEntry
from rayhier.storage.paths import Location
from rayhier.storage.shard import Shard
from rayhier.threads import set_threads

ROUTED, CAPPED = "routed", "capped"
ROUTED_ROWS = 1024
"""Rows in a row group of a routed part. A row group of each of MERGED parts lies in memory while they are merged."""
MERGED = 256
"""Largest number of parts that are merged together. With 768 dimensions in float16, 256 parts take about 1.4 GB."""


@dataclass(frozen=True)
class RoutedParts:
    paths: list[Location]
    digests: list[str]


class RoutePart:
    """An actor that routes parts of the corpus to leaves and writes their rows below scratch, sorted by leaf."""

    def __init__(self, spec: JobSpec, corpus: Artifact, vectors: Artifact, model: Artifact, scratch: Location) -> None:
        set_threads(spec.cluster.index.cpus)
        self.corpus, self.vectors, self.scratch = corpus, vectors, scratch
        self.ledger = Ledger(scratch / "ledger", scratch)
        if spec.encodes_again:
            spec = spec.model_copy(update={"encoder": agreed(spec.encoder, self.ledger)})
        self.model = Model.open(model, spec, encoder=TextEncoder)
        encoder = None if self.model.reads_stored else self.model.text_encoder
        self.encoder = encoder if isinstance(encoder, TextEncoder) and self.model.router.reader is None else None
        self.assign = Assigner(self.model.router, spec, model.record.fingerprint)
        self.clock = Clock(self.encoder)

    def __call__(self, item: Row) -> Iterator[Row]:
        """Route the part `item["part"]`. Yields its number of documents, and times of work."""
        name = str(item["part"])
        documents, base_NM = read_part(self.corpus.path(name), self.vectors.path(name))
        saved = SavedVectors(self.ledger, part_key(name))
        encoded = yield from self._encoded(saved, documents, base_NM)
        with self.clock.working():
            table = self.assign(documents, encoded)
        slices = parquet.slices(table, ROUTED_ROWS)
        file = parquet.write(self.scratch / ROUTED, Path(name).name, slices, table.schema)
        written = file.model_copy(update={"name": f"{ROUTED}/{file.name}"})
        leaf_F, size_F = np.unique(table["leaf"].to_numpy(), return_counts=True)
        counts = {"leaves": leaf_F.tolist(), "sizes": size_F.tolist(), "documents": documents.num_rows}
        self.ledger.enter(part_key(name), LedgerEntry((written,), counts))
        saved.drop()
        yield {"rows": documents.num_rows if self.encoder is None else 0, **self.clock.lap()}

    def _encoded(self, saved: SavedVectors, documents: pa.Table, base_NM: Floats) -> Generator[Row, None, Encoded]:
        if self.encoder is not None:
            chunks = self.encoder.tokenised(document_texts(documents))
            return Encoded((yield from saved.encode(self.encoder, chunks, self.clock)))
        with self.clock.working():
            return self.model.encode_stored(base_NM, lambda: document_texts(documents), "document")


def build(
    executor: Executor, spec: JobSpec, corpus: Artifact, vectors: Artifact, model: Artifact, attempt: Attempt
) -> Output:
    """Write the leaf map of a corpus by a trained model. A document has a row in each of its leaves."""
    spec = as_embedded(spec, vectors, spec.cluster.index.gpus)
    documents = int(corpus.record.counts["rows"])
    parts, counts = _route(executor, spec, corpus, vectors, model, attempt, documents)
    parts, counts, moved = _cap(model, attempt, parts, counts)
    shards = _gather(executor, spec, attempt, parts, counts, words=language(corpus) if spec.index.words else None)
    manifest = Manifest(
        version=BUILT,
        parent=None,
        model=model.record.fingerprint,
        dimension=int(vectors.record.counts["dimension"]),
        metric="inner_product",
        vectors=spec.index.vectors,
        documents=documents,
        leaves_per_document=spec.leaves_per_document,
        moved=moved,
        counts=counts,
        shards=shards,
        language=language(corpus),
    )
    described = _describe(executor, spec, LeafMap(attempt.root, manifest), model, attempt)
    leaf_map.publish(attempt.root, manifest)
    described_counts = {
        "documents": documents,
        "rows": sum(counts),
        "leaves": len(counts),
        "empty": counts.count(0),
        "shards": len(shards),
        "moved": moved,
    }
    return Output(described_counts, (described, *(file for shard in shards for file in shard.files)))


def _route(
    executor: Executor,
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    model: Artifact,
    attempt: Attempt,
    documents: int,
) -> tuple[RoutedParts, list[int]]:
    names = corpus.names("documents/")
    ledger = Ledger(attempt.scratch / "ledger", attempt.scratch)
    arguments = {"spec": spec, "corpus": corpus, "vectors": vectors, "model": model, "scratch": attempt.scratch}
    done = {name: entry.counts["documents"] for name in names if (entry := ledger.done(part_key(name)))}
    missing = [{"part": name} for name in names if name not in done]
    used = Utilisation()
    with Bar("route", documents, "documents") as bar:
        bar.advance(sum(done.values()))
        for row in executor.stream(missing, Pool(RoutePart, arguments, spec.cluster.index)):
            bar.advance(row["rows"])
            used.note(row)
    if used.tokens:
        log(str(used))
    routed, count_L, digests = 0, np.zeros(open_router(model.local("router")).n_leaves, np.int64), []
    for name in names:  # one entry at a time, as an entry holds as many numbers as the part has filled leaves
        if entry := ledger.done(part_key(name)):
            count_L[entry.counts["leaves"]] += entry.counts["sizes"]
            routed += entry.counts["documents"]
            digests += [file.sha256 for file in entry.files]
    _check_count(attempt.root, routed, documents, "documents")
    return RoutedParts([attempt.scratch / ROUTED / Path(name).name for name in names], digests), count_L.tolist()


def _cap(
    model: Artifact, attempt: Attempt, parts: RoutedParts, counts: Sequence[int]
) -> tuple[RoutedParts, list[int], int]:
    """Move rows out of over-full leaves. Returns the parts, the rows of each leaf, and the number of moved rows."""
    size_L = np.array(counts)
    most = leaf_limit.most_rows(size_L.sum(), len(size_L), LEAF_FACTOR)
    if size_L.max(initial=0) <= most:
        return parts, list(counts), 0
    router, room_L = open_router(model.local("router")), np.maximum(most - size_L, 0)
    read = (parquet.read(path, ["doc_id", "leaf", "rank", "log_prob"]) for path in parts.paths)
    capped = RoutedParts(list(parts.paths), list(parts.digests))
    moved_rows, after_L = leaf_limit.excess(read, size_L, np.full_like(size_L, most)), size_L.copy()
    for number, rows in enumerate(moved_rows):
        if len(rows):
            path = parts.paths[number]
            before = parquet.read(path)
            table = leaf_limit.move(router, before, rows, room_L)
            after_L += leaf_sizes(table, len(size_L)) - leaf_sizes(before, len(size_L))
            slices = parquet.slices(table, ROUTED_ROWS)
            file = parquet.write(attempt.scratch / CAPPED, path.name, slices, table.schema)
            capped.paths[number], capped.digests[number] = attempt.scratch / CAPPED / path.name, file.sha256
    moved = sum(map(len, moved_rows))
    log(f"  {moved:,} rows moved to their next-best leaf, because their best leaf was full ({most:,} rows)")
    return capped, after_L.tolist(), moved


def _gather(
    executor: Executor,
    spec: JobSpec,
    attempt: Attempt,
    parts: RoutedParts,
    counts: list[int],
    *,
    words: Language | None,
) -> list[Shard]:
    rows, cuts = sum(counts), ranges(counts, shard_count(spec, [path.stat().st_size for path in parts.paths]))
    # A finished shard with this name may hold rows of parts that were routed again with another result.
    made_of = hashlib.sha256(json.dumps([cuts, counts, parts.digests, words]).encode()).hexdigest()
    in_scratch, published = (Ledger(attempt.scratch / "ledger", root) for root in (attempt.scratch, attempt.root))

    def done(ledger: Ledger, items: list[Row]) -> dict[str, LedgerEntry]:
        entries = {item["key"]: entry for item in items if (entry := ledger.done(item["key"]))}
        return {key: entry for key, entry in entries.items() if entry.counts.get("made_of") == made_of}

    def make(title: str, actor: Callable[..., Actor], ledger: Ledger, items: list[Row], **arguments: Any) -> None:
        entries = done(ledger, items)
        missing = [item for item in items if item["key"] not in entries]
        pool = Pool(actor, {"ledger": ledger, "made_of": made_of, **arguments}, _without_gpus(spec))
        with Bar(title, rows, "rows") as bar:
            bar.advance(sum(entry.counts["rows"] for entry in entries.values()))
            for row in executor.stream(missing, pool):
                bar.advance(row["rows"])

    shards = [_item("shard", number, *cut) for number, cut in enumerate(cuts)]
    if len(done(published, shards)) < len(shards):
        # A group has as many parts as there are shards. So there are about as many files as parts.
        width = max(1, min(len(shards), MERGED, -(-len(parts.paths) // spec.cluster.index.workers)))
        groups = [_item(f"divided-{width}", n, n, n + width) for n in range(0, len(parts.paths), width)]
        ends = {shard["key"]: shard["last"] for shard in shards}
        make("divide", DivideParts, in_scratch, groups, paths=parts.paths, ends=ends)
        folders = [attempt.scratch / group["key"] for group in groups]
        make("gather", GatherShard, published, shards, folders=folders, counts=counts, words=words)
    gathered = [Shard.model_validate(entry.counts["shard"]) for entry in done(published, shards).values()]
    _check_count(attempt.root, sum(shard.rows for shard in gathered), rows, "rows")
    return gathered


def _describe(executor: Executor, spec: JobSpec, opened: LeafMap, model: Artifact, attempt: Attempt) -> files.File:
    scratch, shards = attempt.scratch / "described", opened.manifest.shards
    tree = DisplayTree.of(open_router(model.local("router")))
    with Bar("describe", opened.manifest.documents, "documents") as bar:
        items = [{"shard": number} for number in range(len(shards))]
        pool = Pool(DescribeShard, {"leaf_map": opened, "scratch": scratch}, _without_gpus(spec))
        for row in executor.stream(items, pool):
            bar.advance(row["rows"])
    described = table(tree, np.array(opened.manifest.counts), scratch, len(shards))
    return parquet.write(attempt.root, LEAVES, [described], schemas.LEAVES)


def _item(kind: str, number: int, first: int, last: int) -> Row:
    return {"key": f"{kind}-{number:05d}", "first": first, "last": last}


def _without_gpus(spec: JobSpec) -> Workers:
    return Workers(workers=spec.cluster.index.workers, cpus=spec.cluster.index.cpus)


def _check_count(place: Location, done: int, expected: int, what: str) -> None:
    if done != expected:
        raise InputError(f"{place}: {done} of {expected} {what} are done. Nothing was published. Run it again")


def part_key(name: str) -> str:
    return f"{ROUTED}-leaves-{Path(name).stem}"  # entries `routed-NAME` of 0.2.0 have other counts
