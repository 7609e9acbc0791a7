"""Estimate a job's duration and the memory of one of its processes before the job runs: amount of work / rate.

CPU rates were measured in November 2026 on two shared cores (AMD EPYC, AVX512-BF16, no AMX) with all-MiniLM-L6-v2; GPU
rates are calculated. They tell hours from days, not eight minutes from ten; other machines differ by a factor of two.
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

from rayhier.spec import JobSpec
from rayhier.spec.cluster import GpuWorkers, TrainWorkers
from rayhier.spec.cross_encoder import GROUPS, MOST_PAIRS
from rayhier.spec.encoder import ENOUGH, FOLDS
from rayhier.spec.evaluate import LISTED
from rayhier.spec.search import MOST_QUERIES
from rayhier.spec.train import ContrastTraining, EhiTraining, HceTraining, QueryModel, RetreeverTraining
from rayhier.spec.train.common import MOST_DOCUMENTS, Mining
from rayhier.storage import model_folder
from rayhier.storage.model_layout import read_layout

CPU_BFLOAT16 = 150e9
"""FLOP/s of one core that encodes texts in bfloat16: 220e9 where it works alone (81 texts/s of 128 tokens), 110e9 where
the machine's other core is busy too (40 texts/s)."""
CPU_FLOAT32 = 60e9
"""FLOP/s of one core in float32. Measured on a core that works alone: 82e9 in encoding (30 texts/s of 128 tokens), 75e9
in training the head (at m = 384, 199 steps/s of batch 64 with 40 leaves, 90 with 1,000 leaves; 3.7 of batch 1,024)."""
GPU_BFLOAT16 = 0.35 * 400e12
"""FLOP/s of an H100 in bfloat16; not measured: a third of the 400e12 FLOP/s that large matrix products reach."""
GPU_FLOAT32 = 0.35 * 50e12
"""FLOP/s of an H100 in float32, for head, router and a float32 encoder; not measured."""
TOKENISED = 480e3
"""Tokens that one core's tokenizer produces a second: 3,700 texts/s of 128 tokens. This limits a small encoder on a
GPU."""
ENCODED = 100e3
"""Tokens that one core tokenises and encodes a second, however small the encoder: with two layers of 64 dimensions
140e3 where it works alone, 40e3 on a busy machine."""
ROWS_READ = 20e3
"""Documents that one process reads, checks and writes a second."""
ROWS_WRITTEN = 30e3
"""Rows of the leaf map that one process sorts and writes a second. Routing is estimated separately: 220,000
vectors/s at m = 384 with 40 leaves, 70,000 with 1,000, 9,700 with 7,000."""
START = 10.0
"""Seconds that a stage's processes need to import torch and open their files: 6 to 8 measured for a stage with hardly
any work in processes that wait for it, 14 for one that starts its own."""
BYTES_A_TOKEN = 4
"""Bytes of text that make one token, about."""
PAIRS_A_DOCUMENT = 3
"""Training pairs made of one document where there are no judgements, so that documents serve as queries."""
SWEPT, WIDER, FIRST = 5.0, 1.25, 16
"""Beams of a curve: together they visit the leaves SWEPT times; from FIRST on each is WIDER than the last."""
LISTS_SCANNED = 5e9
"""FLOP/s of one core that scans the rows of leaves: 40e6 rows/s at m = 64, 7e6 at m = 384; memory limits it."""
LEAF_VISITED = 0.4e-6
"""Seconds of one core for a leaf that a query visits, without its rows."""
RESULT_RANKED = 2.5e-6
"""Seconds to merge, name and judge one result of one query, in one process: 1.4e-6 where it works alone, up to 4.6e-6
on a busy machine."""
TUNED = 2.0
"""Curves' worth of work to choose a baseline's number of lists on dev queries."""
WHOLE = {"hnsw", "scann"}
"""Names of the baselines whose index of all vectors a single process builds."""
ITERATIONS, SETTLING, SAMPLE_A_LEAF = 25, 12, 256
"""ITERATIONS of k-means, then SETTLING iterations (about) that even out leaf sizes; k-means reads at most SAMPLE_A_LEAF
documents for each leaf."""
FLAT = 2_000_000_000
"""Largest product of documents and leaves for which k-means takes one step; in two the work grows with the root of the
number of leaves."""
DEV_PAIRS = 200 * 50
"""Most pairs that a cross-encoder scores when it is measured on dev queries: 200 queries, 50 documents for each."""
COMPARED = 6
"""Cost of comparing two numbers by total variation, in FLOPs of a matrix product that take the same time."""
NEIGHBOURS, DEV = 1_000, 0.1
"""Queries of a measurement on dev: a tenth of those of the training pairs, from which dev is cut where it has no
judgements; without pairs, as many held-out documents at most."""
ATTENDED = 512
"""Size of a token's key vector, of its value vector, and of attention's output for each split of a tree."""
STARTED, SETTLED, SEARCHED, NUMBERS = 200_000, 1_024, 100_000, 1 << 28
"""Limits of ReTreever's training, for memory: STARTED documents and SETTLED splits whose scores the first fit of a tree
holds; SEARCHED documents that dev queries search, and NUMBERS numbers that represent these documents."""


@dataclass(frozen=True)
class Work:
    """Amounts that a job processes, from which time and memory are estimated: counts, exact or estimated."""

    documents: int
    """Number of rows of the corpus: documents or passages."""
    document_bytes: float
    """Mean bytes of a row's text."""
    queries: int
    query_bytes: float
    """Mean bytes of a query's text."""
    pairs: int
    """Number of pairs of a query and its answer to train on, judged or generated; 0 where documents serve as
    queries."""
    measured: int
    """Number of judgements of the split on which the index is evaluated."""
    parameters: int
    """Number of parameters of the encoder's transformer without embeddings, which is the multiply-adds of one token."""
    dimension: int
    """Size of a text's vector, m."""
    generated: int = 0
    """Number of pairs of a generated query and a document."""
    generator: int = 0
    """Number of parameters, without embeddings, of the model that writes queries; 0 where no model writes queries."""
    reader: int = 0
    """Number of parameters, without embeddings, of the cross-encoder; 0 where there is none."""


@dataclass(frozen=True)
class Cost:
    """Estimated time in seconds, and memory in bytes, of one run of a stage."""

    seconds: float
    memory: float
    """Peak memory of one process in bytes, without that for a batch or a shard, whose size the spec limits."""


def parameters(folder: Path) -> int:
    """Count the parameters, without embeddings, of an encoder folder's transformer: multiply-adds of one token."""
    return matrices(read_layout(folder).transformer)


def matrices(folder: Path) -> int:
    """Count the numbers in the matrices of a transformer's folder, without embeddings: multiply-adds of one token."""
    count = 0
    for file in model_folder.weight_files(folder):
        with file.open("rb") as opened:
            header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        shapes = [entry["shape"] for name, entry in header.items() if "shape" in entry and "embedding" not in name]
        count += sum(math.prod(shape) for shape in shapes if len(shape) > 1)
    return count


def stage_cost(stage: str, spec: JobSpec, work: Work) -> Cost:
    """Estimate the time and memory of one run of a stage; stages train and index run once for each seed."""
    match stage:
        case "corpus":
            return Cost(START + work.documents / ROWS_READ / spec.cluster.corpus.workers, 0)
        case "generate":
            return Cost(START + _generating(spec, work), 0)
        case "embed":
            drawn = _forward(work, drawn_tokens(spec, work)) / _rate(spec, spec.cluster.embed)
            return Cost(START + _encoding(spec, work, spec.cluster.embed) + drawn, 0)
        case "test":
            count = work.measured * tokens(spec, work.query_bytes)
            return Cost(START + _forward(work, count) / _rate(spec, spec.cluster.evaluate), 0)
        case "cross_encoder":
            return Cost(START + _reading_training(spec, work), _vectors(work) + work.documents * work.document_bytes)
        case "scores":
            pairs = 0 if spec.scores is None else spec.scores.pairs(work.documents)
            return Cost(START + _reading(spec, work, pairs, spec.cluster.scores), 0)
        case "factors":
            return Cost(START + _factorising(spec, work), _vectors(work))
        case "calibrate":
            read = _reading(spec, work, DEV_PAIRS, spec.cluster.evaluate) if spec.chooses_beside else 0.0
            return Cost(START + _calibrating(spec, work) + read, 0)
        case "train":
            return Cost(START + _training(spec, work), _train_memory(spec, work))
        case "index":
            return Cost(2 * START + _indexing(spec, work), 0)  # it starts processes three times, one after another
        case _:
            return Cost(START + _evaluating(spec, work), _evaluate_memory(spec, work))


def pair_tokens(spec: JobSpec, work: Work) -> float:
    """Estimate the mean number of tokens of a pair that the cross-encoder reads; 0 where the spec has none."""
    if spec.cross_encoder is None:
        return 0.0
    return min(spec.cross_encoder.max_length, 3 + (work.query_bytes + work.document_bytes) / BYTES_A_TOKEN)


def _reading(spec: JobSpec, work: Work, pairs: float, workers: GpuWorkers | TrainWorkers) -> float:
    """Seconds to score pairs by the cross-encoder."""
    if spec.cross_encoder is None:
        return 0.0
    encoder = spec.encoder.model_copy(update={"precision": spec.cross_encoder.precision})
    rate = _rate(spec.model_copy(update={"encoder": encoder}), workers)
    return 2.0 * work.reader * pairs * pair_tokens(spec, work) / rate


def _reading_training(spec: JobSpec, work: Work) -> float:
    """Seconds to train the cross-encoder: a step is three forward passes; dev queries are measured each epoch."""
    reads = spec.cross_encoder
    measured = DEV_PAIRS * (1 if reads is None or reads.train is None else 1 + reads.train.epochs)
    if reads is None or reads.train is None:
        return _reading(spec, work, measured, spec.cluster.train)
    held_out = 0 if spec.scores is None else spec.scores.judged
    groups = min(max(0, work.pairs - work.generated - held_out), MOST_PAIRS)
    read = 3.0 * reads.train.epochs * groups * (1 + GROUPS.wrong) + measured
    return _reading(spec, work, read, spec.cluster.train)


def _factorising(spec: JobSpec, work: Work) -> float:
    """Seconds to learn vectors from scores; a bias alone takes none."""
    if spec.factors is None or spec.scores is None or spec.factors.vectors == "none":
        return 0.0
    pairs, m = spec.scores.pairs(work.documents), work.dimension
    each = 2 * 4 * m * m if spec.factors.vectors == "inductive" else m
    learned = 3 * 2 * spec.factors.passes(pairs) * pairs * each
    return (
        learned / _plain_rate(spec.cluster.train) + spec.factors.passes(pairs) * pairs / spec.factors.batch_size / 500
    )


def reranking_seconds(spec: JobSpec, work: Work) -> float:
    """Estimate the seconds of one process of stage evaluate to re-rank one query; 0 where the spec re-ranks nothing."""
    rerank = spec.search.reranking
    if rerank is None:
        return 0.0
    reader = spec.cluster.evaluate.model_copy(update={"workers": 1})
    return _reading(spec, work, rerank.budget, reader)


def _generating(spec: JobSpec, work: Work) -> float:
    """Seconds to read a file of pairs, or to write queries: half of the model reads documents, half writes tokens."""
    model = spec.train.generation
    if not isinstance(model, QueryModel):
        return work.generated / ROWS_READ
    token_count = work.generated / model.per_document * min(model.max_length, 2 + work.document_bytes / BYTES_A_TOKEN)
    return work.generator * (token_count + work.generated * model.new_tokens) / _plain_rate(spec.cluster.embed)


def tokens(spec: JobSpec, mean_bytes: float) -> float:
    """Estimate the mean number of tokens of texts of `mean_bytes` bytes, each cut at the encoder's `max_length`."""
    return min(spec.encoder.max_length, 2 + mean_bytes / BYTES_A_TOKEN)


def drawn_tokens(spec: JobSpec, work: Work) -> float:
    """Estimate the tokens of all pseudo-queries (titles and spans of documents); 0 where the training uses none."""
    draws = spec.train.draws
    if draws is None:
        return 0.0
    title = tokens(spec, work.query_bytes) if draws.has_titles else 0.0
    length = tokens(spec, work.document_bytes)
    spans = draws.spans * draws.length if draws.has_spans and length > draws.length else 0
    return work.documents * (title + spans)


def drawn_rows(spec: JobSpec, work: Work) -> int:
    """Return the largest possible number of pseudo-queries (titles and spans of documents) that the training uses."""
    draws = spec.train.draws
    return 0 if draws is None else work.documents * (draws.has_titles + draws.has_spans * draws.spans)


def _encoding(spec: JobSpec, work: Work, workers: GpuWorkers | TrainWorkers) -> float:
    """Seconds to encode every document and query once; CPUs tokenise at the same time."""
    queries = work.queries + work.generated
    count = work.documents * tokens(spec, work.document_bytes) + queries * tokens(spec, work.query_bytes)
    resources = spec.cluster.tokenise or workers
    seconds = max(
        _forward(work, count) / _rate(spec, workers), count / (TOKENISED * resources.cpus * resources.workers)
    )
    if workers.gpus and spec.encoder.device != "cpu":
        return seconds
    return max(seconds, count / (ENCODED * workers.cpus * workers.workers))


def _forward(work: Work, count: float) -> float:
    """FLOPs of passing `count` tokens through the transformer."""
    return 2.0 * work.parameters * count


def _rate(spec: JobSpec, workers: GpuWorkers | TrainWorkers) -> float:
    """FLOP/s of all processes of a stage together while they encode."""
    full = spec.encoder.precision == "float32"
    if workers.gpus and spec.encoder.device != "cpu":
        return workers.workers * workers.gpus * (GPU_FLOAT32 if full else GPU_BFLOAT16)
    return workers.workers * workers.cpus * (CPU_FLOAT32 if full else CPU_BFLOAT16)


def _plain_rate(workers: GpuWorkers | TrainWorkers) -> float:
    """FLOP/s of all processes of a stage together in float32 products."""
    return workers.workers * (workers.gpus * GPU_FLOAT32 if workers.gpus else workers.cpus * CPU_FLOAT32)


def _router(spec: JobSpec, work: Work, mean_bytes: float) -> float:
    """Multiply-adds of head and router for a text of `mean_bytes` bytes that is compared with all leaves."""
    leaves, m = spec.leaves(work.documents), work.dimension
    if spec.router.reads == "tokens":
        return float(m**2 + ATTENDED * (2 * tokens(spec, mean_bytes) * (m + leaves - 1) + leaves - 1))
    return m**2 + spec.router.multiply_adds(leaves, m)


def _placing(spec: JobSpec, work: Work) -> float:
    """Multiply-adds of head and router for a document that gets its leaves."""
    if spec.router.reads == "tokens":
        return _router(spec, work, work.document_bytes)
    return work.dimension**2 + spec.router.placing(spec.leaves(work.documents), work.dimension)


def _training(spec: JobSpec, work: Work) -> float:
    """Seconds of all training phases together, shared by all workers."""
    train = spec.train
    trained = 1 + _folds(spec, work)
    if isinstance(train, RetreeverTraining):
        learns = "encoder" in spec.phases(work.pairs, work.documents)
        return (trained * _learning(spec, train.contrast, work) if learns else 0.0) + _growing(spec, train, work)
    after = 0.0 if train.routes else _teaching(spec, work) / _plain_rate(spec.cluster.train)
    return trained * _learning(spec, train, work) + after


def _folds(spec: JobSpec, work: Work) -> int:
    """Count the folds without which the encoder is trained again, to decide by train queries if it is kept."""
    few = work.pairs > 0 and DEV * work.pairs < ENOUGH
    if not spec.trains_encoder_alone or spec.encoder.adopt == "always" or not few:
        return 0
    return min(FOLDS, math.ceil(ENOUGH * FOLDS / work.pairs))


def _learning(spec: JobSpec, train: ContrastTraining | EhiTraining | HceTraining, work: Work) -> float:
    """Seconds to train the encoder, or encoder and router together, shared by all workers."""
    workers = spec.cluster.train
    routing, leaves = _router(spec, work, work.document_bytes), spec.leaves(work.documents)
    work = _sample(work)
    pairs = work.pairs or (PAIRS_A_DOCUMENT if train.routes else 1) * work.documents
    epochs, batch = train.passes(pairs), train.batch_size
    m = work.dimension
    texts = 3 * pairs  # query, positive, hard negative
    routed, compared = (routing, m + leaves) if train.routes else (m * m, m)
    step = 3 * 2 * (texts * routed + 2 * pairs * min(batch, pairs) * compared)
    measured, mined = epochs / train.between(epochs), epochs / _refresh(train.hard_negatives, epochs)
    snapshots = measured + mined
    placed = 2 * work.documents * (routing if train.routes else m * m)
    asked = measured * (DEV * work.pairs or NEIGHBOURS) + (
        mined * pairs if train.hard_negatives.source == "exact" else 0
    )
    searched = 2 * asked * work.documents * m
    if train.needs_judgements and not work.pairs:
        epochs = snapshots = searched = 0  # the encoder is not trained
    seconds = (epochs * step + snapshots * placed) / _plain_rate(workers) + searched / CPU_FLOAT32
    if spec.encoder.transformer_part is None:
        return seconds
    count = pairs * (2 * tokens(spec, work.document_bytes) + tokens(spec, work.query_bytes))
    passes = 3 if train.micro_batch is None else 4  # backward is two forwards; cached gradients take one more
    encoded = epochs * passes * _forward(work, count) / _rate(spec, workers)
    return seconds + encoded + snapshots * _encoding(spec, work, workers)


def _growing(spec: JobSpec, train: RetreeverTraining, work: Work) -> float:
    """Seconds to train ReTreever's tree and the adapter that it starts at, shared by all workers."""
    workers, work, leaves = spec.cluster.train, _sample(work), spec.leaves(work.documents)
    asking = min(round(train.documents * work.pairs), work.documents)
    pairs = asking + (work.pairs or PAIRS_A_DOCUMENT * work.documents)
    phases = len({"adapter", "tree"} & set(spec.phases(work.pairs, work.documents)))
    epochs, searched = train.passes(pairs), _searched(work.documents, leaves)
    measured = epochs / train.between(epochs) * searched
    query, document = (_router(spec, work, mean) for mean in (work.query_bytes, work.document_bytes))
    step = 3 * 2 * (work.pairs * query + (2 * pairs - work.pairs) * document)
    step += 3 * COMPARED * pairs * min(train.batch_size, pairs) * leaves
    placed = 2 * document + COMPARED * min(work.measured or NEIGHBOURS, NEIGHBOURS) * 2 * leaves
    near = 2 * asking * work.documents * work.dimension
    seconds = (phases * (epochs * step + measured * placed) + near) / _plain_rate(workers)
    if not spec.encodes_again:
        return seconds
    query, document = (tokens(spec, mean) for mean in (work.query_bytes, work.document_bytes))
    read = epochs * (work.pairs * query + (2 * pairs - work.pairs) * document) + measured * document
    return seconds + _forward(work, phases * read) / _rate(spec, workers) + _encoding(spec, work, workers)


def _searched(documents: int, leaves: int) -> int:
    """Number of documents that dev queries search while a tree is trained."""
    return min(documents, SEARCHED, NUMBERS // leaves)


def _sample(work: Work) -> Work:
    """The work with at most the documents that training keeps."""
    return replace(work, documents=min(work.documents, MOST_DOCUMENTS))


def _teaching(spec: JobSpec, work: Work) -> float:
    """FLOPs of teaching the router: k-means, exact neighbours of its training texts, and the training itself."""
    routing, leaves = _router(spec, work, work.document_bytes), spec.leaves(work.documents)
    m, work = work.dimension, _sample(work)
    targets = spec.router.targets(work.pairs, work.documents)
    sample = min(work.documents, SAMPLE_A_LEAF * leaves)
    settled = 2 * SETTLING * sample * spec.router.placing(leaves, m)
    steps = sample * leaves if sample * leaves <= FLAT else 2 * work.documents * leaves**0.5
    clustered = 2 * ITERATIONS * steps * m
    near = 2 * targets * work.documents * m
    epochs = sum(spec.router.phases(supervised=True).values())
    return clustered + settled + near + 3 * 2 * epochs * targets * routing


def _refresh(hard: Mining, epochs: int) -> float:
    """Epochs between two minings of hard negatives."""
    if hard.source == "none":
        return epochs
    return hard.refresh


def _train_memory(spec: JobSpec, work: Work) -> float:
    """Bytes of base and trained vectors of documents and queries, and of pseudo-queries' base vectors, copied once.

    Texts count too where training encodes them again. So do scores at a tree's deepest level: of documents in the first
    fit of the tree, or of the documents that dev queries search, with two arrays to compare them, whichever is larger.
    """
    extra, work = 0.0, replace(_sample(work), queries=work.queries + work.generated)
    drawn = 2 * 4.0 * drawn_rows(spec, work) * work.dimension
    if spec.encodes_again:
        extra += work.documents * work.document_bytes + work.queries * work.query_bytes
    if isinstance(spec.train, RetreeverTraining):
        leaves = spec.leaves(work.documents)
        started = min(work.documents, STARTED) if spec.router.reads == "vectors" else 0
        extra += 4.0 * max(min(leaves, SETTLED) * started, leaves * 3 * _searched(work.documents, leaves))
    return 2 * _vectors(work) + drawn + extra


def _vectors(work: Work) -> float:
    """Bytes of one float32 vector for every document and query."""
    return 4.0 * (work.documents + work.queries) * work.dimension


def _evaluate_memory(spec: JobSpec, work: Work) -> float:
    """Bytes of one process: base vectors, trained vectors and a control's lists for its share of the documents.

    A baseline that one process builds takes twice the vectors of all documents.
    """
    shared = spec.cluster.evaluate.workers
    return _vectors(work) * max(3 / shared, 2 if WHOLE & set(spec.evaluate.baselines) else 0)


def _indexing(spec: JobSpec, work: Work) -> float:
    workers = spec.cluster.index
    routed = 2 * work.documents * _placing(spec, work) / _plain_rate(workers)
    written = work.documents * spec.rows_per_document / ROWS_WRITTEN / workers.workers
    return routed + written + (_encoding(spec, work, workers) if spec.encodes_again else 0)


def _calibrating(spec: JobSpec, work: Work) -> float:
    """Seconds of one process to compare dev queries with all documents."""
    compared = 2.0 * min(work.queries, MOST_QUERIES) * work.documents * work.dimension
    return compared / (spec.cluster.evaluate.cpus * CPU_FLOAT32)


def _evaluating(spec: JobSpec, work: Work) -> float:
    """Seconds to measure the index and its baselines: exact searches, curves over all beams, and their rankings."""
    workers, leaves, queries = spec.cluster.evaluate, spec.leaves(work.documents), work.measured
    cores = workers.workers * workers.cpus
    names = {*spec.evaluate.baselines, *(["faiss_ivf_spill"] if spec.leaves_per_document > 1 else [])}
    listed = names & set(LISTED)
    curves, single = 1 + len(listed) * (1 + (TUNED if spec.evaluate.lists == "auto" else 0)), len(names - listed)
    beams = FIRST + max(0.0, math.log(leaves / FIRST, WIDER))
    exact = 2.0 * single * queries * work.documents * work.dimension / CPU_FLOAT32
    row = 2.0 * work.dimension / LISTS_SCANNED
    scanned = curves * SWEPT * queries * (work.documents * row + leaves * LEAF_VISITED)
    deepest = max(spec.search.k, *(int(measure.partition("@")[2]) for measure in spec.evaluate.measures))
    ranked = (single + curves * beams) * queries * min(deepest, work.documents) * RESULT_RANKED
    query_tokens = queries * tokens(spec, work.query_bytes) if spec.encodes_again else 0
    read = queries * reranking_seconds(spec, work) / workers.workers
    seconds = (exact + scanned) / cores + ranked + _forward(work, query_tokens) / CPU_FLOAT32 + read
    return len(spec.evaluate.seeds) * seconds
