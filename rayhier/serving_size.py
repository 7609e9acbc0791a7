"""Estimate the size of serving an index: for each deployment memory and questions a second of a replica, and replicas.

Constants were measured in November 2026 on two shared cores with 32 clients, batches as they formed; a replica has one
core. They tell one replica from ten, not two from three.
"""

import math
from dataclasses import dataclass

from rayhier.estimate import CPU_FLOAT32, Work, reranking_seconds, tokens
from rayhier.spec import JobSpec
from rayhier.spec.search import LOSSLESS, Codec

RATE, BUSY = 100.0, 0.6
"""Questions a second that all replicas should answer, and the share of its time that a replica may be busy."""
GROUPS = 2
"""Shard groups where no number is given."""
PROCESS, SCANNING_PROCESS = 0.6e9, 0.45e9
"""Bytes of a replica with torch, and of a replica that scans, each without its part of the index."""
ANSWERING, SCANNING = 9e-3, 2.5e-3
"""Seconds of a core for a question in an ingress, without encoding, and in a shard group, without its rows."""
SCANNED = 4e9
"""Numbers of stored vectors that a core compares a second."""
ROW = 12
"""Bytes of a row in a scan, in addition to its vector."""
CODED: dict[Codec, float] = {"flat": 4, "fp16": 2, "int8": 1, "pq": 1 / 8, "rabitq": 1 / 8}
"""Bytes of a dimension under each codec (`rayhier/search/codecs.py`)."""


@dataclass(frozen=True)
class Deployment:
    """Size and speed of a replica of a deployment."""

    name: str
    memory: float
    """Bytes; of a shard group mostly mapped files, which replicas on one machine share."""
    rate: float
    """Questions a second."""

    def replicas(self, rate: float = RATE) -> int:
        """Return the replicas that answer `rate` questions a second and are busy for `BUSY` of their time."""
        return math.ceil(rate / (BUSY * self.rate))


def deployments(spec: JobSpec, work: Work, weights: float, reader: float) -> list[Deployment]:
    """List the deployments of a served index; `weights` and `reader` are bytes of encoder and cross-encoder."""
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
    """Estimate the bytes that all shard groups together map or hold: coded vectors, a level's numbers, words."""
    codec = LOSSLESS[spec.index.vectors] if spec.search.codec == "auto" else spec.search.codec
    size = work.documents * spec.rows_per_document * (CODED[codec] * work.dimension + ROW)
    if spec.search.how == "level":
        size += work.documents * spec.router.sidecar_bytes
    return size + (work.documents * work.document_bytes if spec.search.words else 0)


def visited(spec: JobSpec, leaves: int, rows: float) -> float:
    """Estimate the rows that a question visits: all rows in a search by a level."""
    if spec.search.how == "level":
        return rows
    return rows * min(1.0, spec.search.leaves_visited(leaves, round(rows)) / leaves)
