"""How long a job takes and how much memory one of its processes needs, before it runs: rates times work.

Rates were measured in November 2026 on two shared cores (AMD EPYC, AVX512-BF16, no AMX) with all-MiniLM-L6-v2, the
GPU's are reckoned. They tell hours from days, not eight minutes from ten; other machines differ by a factor of two.
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

from rayhier.spec import JobSpec
from rayhier.spec.cluster import TrainWorkers, Workers
from rayhier.storage import model_folder
from rayhier.storage.model_layout import read_layout

CPU_BFLOAT16 = 150e9
"""FLOP/s of one core that encodes: 81 texts/s of 128 tokens alone (220e9), 40 with its neighbour busy (110e9)."""
CPU_FLOAT32 = 60e9
"""The same in float32: 30 texts/s alone (82e9). Head training reaches 75e9 alone: 199 steps/s of batch 64 at m = 384
with 40 leaves, 90 with 1,000 leaves; 3.7 of batch 1,024."""
GPU_BFLOAT16 = 0.35 * 400e12
"""FLOP/s of an H100, not measured: a third of the 400e12 that large matrix products reach."""
GPU_FLOAT32 = 0.35 * 50e12
"""The same for the products of head and router."""
TOKENISED = 480e3
"""Tokens a second and core: 3,700 texts/s of 128 tokens. What holds a small encoder back on a GPU."""
ROWS_READ = 20e3
"""Documents a second and process: read, checked, written."""
ROWS_WRITTEN = 30e3
"""Rows of the leaf map a second and process: sorted and written. Routing counts by itself: 220,000 vectors/s at
m = 384 with 40 leaves, 70,000 with 1,000, 9,700 with 7,000."""
START = 15.0
"""Seconds until a stage's processes have imported torch and opened their files."""
BYTES_A_TOKEN = 4
PAIRS_A_DOCUMENT = 3
"""Where documents serve as queries."""
SCANS = 20
"""Exact searches that an evaluation is worth: four systems, each but exact search at every beam of its curve."""
WHOLE = {"hnsw", "scann"}
"""Baselines that one process builds over all vectors."""
ITERATIONS, SETTLING, SAMPLE = 25, 12, 256
"""Of k-means, of evening its leaves (about), and the documents a leaf that both see at most."""
NEIGHBOURS = 1_000
"""Held-out documents at most, where dev has no judgement."""


@dataclass(frozen=True)
class Work:
    """What a job handles: counts, known or about."""

    documents: int
    """Rows of the corpus: documents or passages."""
    document_bytes: float
    """Mean of a row's text."""
    queries: int
    query_bytes: float
    """Mean of a query's text."""
    pairs: int
    """Train judgements; 0 where documents serve as queries."""
    measured: int
    """Judgements evaluated."""
    parameters: int
    """Of the transformer, without embeddings: multiply-adds a token."""
    dimension: int
    """m."""


@dataclass(frozen=True)
class Cost:
    """Of a stage, estimated."""

    seconds: float
    memory: float
    """Bytes that one of its processes holds at its peak, beside what batch and shard bound."""


def parameters(folder: Path) -> int:
    """Multiply-adds a token: numbers in the matrices of an encoder folder, but for embeddings, which are looked up."""
    count = 0
    for file in model_folder.weight_files(read_layout(folder).transformer):
        with file.open("rb") as opened:
            header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        shapes = [entry["shape"] for name, entry in header.items() if "shape" in entry and "embedding" not in name]
        count += sum(math.prod(shape) for shape in shapes if len(shape) > 1)
    return count


def stage_cost(stage: str, spec: JobSpec, work: Work) -> Cost:
    """What one run of a stage costs; of train and index, one seed's."""
    match stage:
        case "corpus":
            return Cost(START + work.documents / ROWS_READ / spec.cluster.corpus.workers, 0)
        case "embed":
            return Cost(START + _encoding(spec, work, spec.cluster.embed), 0)
        case "train":
            return Cost(START + _training(spec, work), _train_memory(spec, work))
        case "index":
            return Cost(START + _indexing(spec, work), 0)
        case _:
            return Cost(START + _evaluating(spec, work), _evaluate_memory(spec, work))


def tokens(spec: JobSpec, mean_bytes: float) -> float:
    """Mean tokens of texts of so many bytes, cut at `max_length`."""
    return min(spec.encoder.max_length, 2 + mean_bytes / BYTES_A_TOKEN)


def _encoding(spec: JobSpec, work: Work, workers: Workers | TrainWorkers) -> float:
    """Seconds to encode every document and query once; tokenising is a CPU's work and goes on beside."""
    count = work.documents * tokens(spec, work.document_bytes) + work.queries * tokens(spec, work.query_bytes)
    own = spec.cluster.tokenise or workers
    return max(_forward(work, count) / _rate(spec, workers), count / (TOKENISED * own.cpus * own.workers))


def _forward(work: Work, count: float) -> float:
    """FLOPs of so many tokens through the transformer."""
    return 2.0 * work.parameters * count


def _rate(spec: JobSpec, workers: Workers | TrainWorkers) -> float:
    """FLOP/s of a stage's processes at encoding."""
    full = spec.encoder.precision == "float32"
    if workers.gpus and spec.encoder.device != "cpu":
        return workers.workers * workers.gpus * (GPU_FLOAT32 if full else GPU_BFLOAT16)
    return workers.workers * workers.cpus * (CPU_FLOAT32 if full else CPU_BFLOAT16)


def _plain_rate(workers: Workers | TrainWorkers) -> float:
    """FLOP/s of a stage's processes at float32 products."""
    return workers.workers * (workers.gpus * GPU_FLOAT32 if workers.gpus else workers.cpus * CPU_FLOAT32)


def _router(spec: JobSpec, work: Work) -> float:
    """Multiply-adds of one vector through head and router, where all leaves are scored."""
    return work.dimension**2 + spec.router.multiply_adds(work.documents, work.dimension)


def _training(spec: JobSpec, work: Work) -> float:
    """Seconds of every phase, on all workers."""
    train, workers = spec.train, spec.cluster.train
    routing, leaves = _router(spec, work), spec.router.leaves(work.documents)
    after = 0.0 if train.routes else _teaching(spec, work, routing, leaves)
    work = _sample(spec, work)
    epochs, batch = train.epochs, train.batch_size
    pairs = work.pairs or PAIRS_A_DOCUMENT * work.documents
    m = work.dimension
    texts = 3 * pairs  # query, positive, hard negative
    routed, others = (routing, m + leaves) if train.routes else (m * m, m)
    step = 3 * 2 * (texts * routed + 2 * pairs * min(batch, pairs) * others)
    snapshots = epochs / train.measure_every + epochs / _refresh(spec, pairs, epochs, batch)
    placed = 2 * work.documents * (routing if train.routes else m * m)
    searched = 2 * 0.4 * min(work.measured or NEIGHBOURS, NEIGHBOURS) * work.documents * m
    if not train.routes and not work.pairs:
        epochs = snapshots = 0  # the encoder stays as it came
    seconds = (epochs * step + snapshots * placed) / _plain_rate(workers) + snapshots * searched / CPU_FLOAT32
    seconds += after / _plain_rate(workers)
    if spec.encoder.train == "head":
        return seconds
    count = pairs * (2 * tokens(spec, work.document_bytes) + tokens(spec, work.query_bytes))
    passes = 3 if train.micro_batch is None else 4  # backward is two forwards; cached gradients take one more
    encoded = epochs * passes * _forward(work, count) / _rate(spec, workers)
    return seconds + encoded + snapshots * _encoding(spec, work, workers)


def _sample(spec: JobSpec, work: Work) -> Work:
    """What training holds of the corpus."""
    return replace(work, documents=min(work.documents, spec.train.most_documents))


def _teaching(spec: JobSpec, work: Work, routing: float, leaves: int) -> float:
    """FLOPs of k-means, of the lessons' exact neighbours, and of the lessons."""
    m, work = work.dimension, _sample(spec, work)
    lessons = spec.router.lessons(work.pairs, work.documents)
    clustered = 2 * (ITERATIONS + SETTLING) * min(work.documents, SAMPLE * leaves) * leaves * m
    near = 2 * lessons * work.documents * m
    epochs = sum(spec.router.phases(supervised=True).values())
    return clustered + near + 3 * 2 * epochs * lessons * routing


def _refresh(spec: JobSpec, pairs: int, epochs: int, batch: int) -> float:
    """Epochs between two minings."""
    hard = spec.train.hard_negatives
    if hard.source == "none":
        return epochs
    return hard.refresh if hard.unit == "epochs" else hard.refresh * batch / max(pairs, batch)


def _train_memory(spec: JobSpec, work: Work) -> float:
    """Base and trained vectors of the documents it holds and of queries; texts too where more than the head trains."""
    texts, work = 0.0, _sample(spec, work)
    if spec.encoder.train != "head":
        texts = work.documents * work.document_bytes + work.queries * work.query_bytes
    return 2 * _vectors(work) + texts


def _vectors(work: Work) -> float:
    return 4.0 * (work.documents + work.queries) * work.dimension


def _evaluate_memory(spec: JobSpec, work: Work) -> float:
    """Base vectors, trained ones and a control's lists of a share of the documents, or of all for a whole baseline."""
    shared = spec.cluster.evaluate.workers
    return _vectors(work) * max(3 / shared, 2 if WHOLE & set(spec.evaluate.baselines) else 0)


def _indexing(spec: JobSpec, work: Work) -> float:
    workers = spec.cluster.index
    routed = 2 * work.documents * _router(spec, work) / _plain_rate(workers)
    written = work.documents * spec.rows_per_document / ROWS_WRITTEN / workers.workers
    return routed + written + (0 if spec.encoder.train == "head" else _encoding(spec, work, workers))


def _evaluating(spec: JobSpec, work: Work) -> float:
    workers = spec.cluster.evaluate
    scanned = 2.0 * SCANS * work.measured * work.documents * work.dimension / (workers.workers * workers.cpus)
    scanned /= CPU_FLOAT32
    asked = 0 if spec.encoder.train == "head" else work.measured * tokens(spec, work.query_bytes)
    return len(spec.evaluate.seeds) * (scanned + _forward(work, asked) / CPU_FLOAT32)
