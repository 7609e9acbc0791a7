"""Estimate the size of serving an index: memory, queries a second and number of replicas of each Ray Serve deployment.

Constants were measured in November 2026 on two shared cores; queries of 32 clients at a time formed batches as they
came, and a replica had one core. They tell one replica from ten, not two from three.
"""

import math
from dataclasses import dataclass

from rayhier.estimate import CPU_FLOAT32, Work, reranking_seconds, tokens
from rayhier.spec import JobSpec
from rayhier.spec.search import LOSSLESS

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
"""Bytes of a row in a search by BM25: its document's length and its score; postings are mapped."""


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
    encoding = 2.0 * work.parameters * tokens(spec, work.query_bytes) / CPU_FLOAT32
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
    size = index.coded_rows(spec.search.row_codec(index) or LOSSLESS[spec.index.vectors])
    if spec.search.how == "level":
        size += work.documents * spec.router.sidecar_bytes
    return size + (COUNTED * index.rows if spec.index.words else 0)


def visited(spec: JobSpec, leaves: int, rows: float) -> float:
    """Estimate the number of rows that a query visits; a search by a level compares all rows."""
    if spec.search.how == "level":
        return rows
    return rows * min(1.0, spec.search.leaves_visited(leaves, round(rows)) / leaves)
