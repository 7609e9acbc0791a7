"""Estimate the memory of a stage's processes, and the size of serving: memory, queries a second, replicas.

Constants of serving were measured in November 2026 on two shared cores. Queries of 32 clients at a time formed batches
as they came, and a replica had one core. They tell one replica from ten, not two from three.
"""

import math
from dataclasses import dataclass, replace

from rayhier.job.hours import FLOPS, Work, reranking_seconds, tokens
from rayhier.spec import JobSpec
from rayhier.spec.train import RetreeverTraining
from rayhier.spec.train.common import MOST_DOCUMENTS

RATE, BUSY = 100.0, 0.6
"""RATE: queries a second that all replicas together should answer. BUSY: share of its time that a replica may be
busy."""
GROUPS = 2
"""Number of shard groups that is assumed where the user gives none."""
PROCESS, SCANNING_PROCESS = 0.6e9, 0.45e9
"""Bytes of memory of a replica with torch (PROCESS), and of one that scans rows (SCANNING_PROCESS), without the
index."""
ANSWERING, SCANNING = 9e-3, 2.5e-3
"""Seconds of one core for a query: in the ingress deployment without encoding (ANSWERING), in a shard group without the
scan of rows (SCANNING)."""
SCANNED = 4e9
"""Numbers of stored vectors that one core multiplies a second in a scan."""
COUNTED = 8
"""Bytes of a row in a search by BM25: its document's length and its score. Postings are mapped."""
STARTED, SETTLED, SEARCHED, NUMBERS = 200_000, 1_024, 100_000, 1 << 28
"""Limits of ReTreever's training, for memory: STARTED documents and SETTLED splits whose scores the first fit of a tree
holds; SEARCHED documents that dev queries search, and NUMBERS numbers that represent these documents."""


@dataclass(frozen=True)
class Deployment:
    """Estimated memory and speed of one replica of a Ray Serve deployment."""

    name: str
    memory: float
    """Memory of a replica in bytes; in a shard group mostly mapped files, which replicas on one machine share."""
    rate: float
    """Queries a second that one replica answers while it is busy all the time."""

    def replicas(self, rate: float = RATE) -> int:
        """Return the replicas needed for `rate` queries a second, each busy for the share `BUSY` of its time."""
        return math.ceil(rate / (BUSY * self.rate))


def deployments(spec: JobSpec, work: Work, weights: float, reader: float) -> list[Deployment]:
    """List the deployments of a served index; `weights` and `reader` are bytes of encoder and cross-encoder files."""
    leaves, m = spec.leaves(work.documents), work.dimension
    rows = work.documents * spec.rows_per_document
    encoding = 2.0 * work.parameters * tokens(spec, work.query_bytes) / FLOPS["core", True]
    routing = spec.router.multiply_adds(leaves, m) / SCANNED
    sized = [
        Deployment("ingress", PROCESS + weights + 4.0 * leaves * m, 1 / (ANSWERING + encoding + routing)),
        Deployment(
            f"shards-0 … {GROUPS - 1}",
            SCANNING_PROCESS + held(spec, work) / GROUPS,
            1 / (SCANNING + visited(spec, leaves, rows) * m / GROUPS / SCANNED),
        ),
    ]
    if spec.search.reranking is not None:
        sized.append(Deployment("reranker", PROCESS + reader, 1 / reranking_seconds(spec, work)))
    return sized


def held(spec: JobSpec, work: Work) -> float:
    """Estimate the bytes of index that all shard groups hold: vectors, numbers of a level, lengths of documents."""
    index = spec.index_size(work.documents, work.dimension)
    size = index.coded_bytes
    if spec.search.how == "level":
        size += work.documents * spec.router.sidecar_bytes
    return size + (COUNTED * index.rows if spec.index.words else 0)


def visited(spec: JobSpec, leaves: int, rows: float) -> float:
    """Estimate the number of rows that a query visits; a search by a level compares all rows."""
    if spec.search.how == "level":
        return rows
    return rows * min(1.0, spec.search.leaves_visited(leaves, round(rows)) / leaves)


def drawn_rows(spec: JobSpec, work: Work) -> int:
    """Return the largest possible number of pseudo-queries (titles and spans of documents) that the training uses."""
    draws = spec.train.draws
    return 0 if draws is None else work.documents * (draws.has_titles + draws.has_spans * draws.spans)


def stage_memory(stage: str, spec: JobSpec, work: Work) -> float:
    """Estimate the peak memory of one process in bytes, without that for a batch or a shard, which the spec limits."""
    match stage:
        case "cross_encoder":
            return _vectors(work) + work.documents * work.document_bytes
        case "factors":
            return _vectors(work)
        case "train":
            return _train_memory(spec, work)
        case "evaluate":  # a baseline with two lists a document; the vectors that it is made of are mapped
            return 2 * _vectors(work)
        case _:
            return 0


def _train_memory(spec: JobSpec, work: Work) -> float:
    """Bytes of base and trained vectors of documents and queries, and of pseudo-queries' base vectors, copied once.

    Texts count too if training encodes them again. So do scores at a tree's deepest level: of documents in the first
    fit of the tree, or of the documents that dev queries search, with two arrays to compare them, whichever is larger.
    """
    documents, queries, extra = min(work.documents, MOST_DOCUMENTS), work.queries + work.generated, 0.0
    work = replace(work, documents=documents, queries=queries)
    drawn = 2 * 4.0 * drawn_rows(spec, work) * work.dimension
    if spec.encodes_again:
        extra += work.documents * work.document_bytes + work.queries * work.query_bytes
    if isinstance(spec.train, RetreeverTraining):
        leaves = spec.leaves(work.documents)
        started = min(work.documents, STARTED) if spec.router.reads == "vectors" else 0
        searched = min(work.documents, SEARCHED, NUMBERS // leaves)
        extra += 4.0 * max(min(leaves, SETTLED) * started, leaves * 3 * searched)
    return 2 * _vectors(work) + drawn + extra


def _vectors(work: Work) -> float:
    return 4.0 * (work.documents + work.queries) * work.dimension
