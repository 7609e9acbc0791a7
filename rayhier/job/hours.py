"""Estimate how long a stage takes, before the job runs.

Time is an amount of work / (rate x devices), plus the start of processes. A rate that a run measured on this machine
(`rates.py`) replaces the rate of `RATES`. This table was measured in November 2026 with all-MiniLM-L6-v2, on two shared
cores (AMD EPYC, AVX512-BF16, no AMX). Estimates are rough. The table has no rate of a GPU. The time of a stage on a GPU
is unknown until a run on this machine measures it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rayhier.spec import JobSpec
from rayhier.spec.cluster import TrainWorkers
from rayhier.spec.cluster import Workers as StageWorkers
from rayhier.spec.cross_encoder import MOST_PAIRS, WRONG, factor_passes
from rayhier.spec.encoder import ENOUGH, FOLDS
from rayhier.spec.search import MOST_QUERIES
from rayhier.spec.train.pseudo_queries import MOST_DRAWN, SPANS

Workers = StageWorkers | TrainWorkers
RATES = {
    "corpus": ("documents", 20e3),  # read, checked, written
    "generate": ("pairs", 20e3),  # read from a file
    "train": ("texts", 6e3),  # a pair, or a document that gets a leaf, by head and router with 1,000 leaves
    "index": ("documents", 10e3),  # routed to 1,000 leaves, sorted, written
    "factors": ("scores", 100e3),
    "calibrate": ("comparisons", 30e6),  # of a query and a document
    "evaluate": ("visits", 5e3),  # of a query by a system: √documents, the number of leaves or lists
}
"""Unit of a stage's work, and its amount per second on one core. The work of other stages is tokens (rates below)."""
FLOPS = {False: 150e9, True: 60e9}
"""FLOP/s of a core that passes tokens through a transformer, in float32 (True) or in bfloat16 (False)."""
TOKENISED = 100e3
"""Largest number of tokens per second of a core, even if the transformer is small, because texts are tokenised
first."""
START, START_HERE, LEAST_WORK = 5.0, 2.0, 2.0
"""START: seconds to start a stage's processes on Ray. START_HERE: seconds to start a stage in this process. LEAST_WORK:
seconds of work by the table's rate. A rate is measured if a stage had that work, and took twice as long as its
start."""
IDS = 200e3
"""Ids of documents that a process reads per second. Judgements of the test split must name some of these ids."""
PLACED = 4e9
"""Multiply-adds per second of a core that places documents in leaves."""
POOLS = {"index": 3}
"""Number of times that a stage starts processes, one after another, if more than once."""
BYTES_A_TOKEN = 4
"""Approximate bytes of text per token."""
DEV_PAIRS = 200 * 50
"""Largest number of pairs that a cross-encoder reads when it is measured on dev queries: 200 queries, 50 documents for
each."""
BACKWARD = 3
"""Number of forward passes that take as long as a training step."""
DEV = 0.1
"""Share of the train queries that become dev queries."""


@dataclass(frozen=True)
class Work:
    """Exact or estimated amounts that a job processes. Time and memory are estimated from these amounts."""

    documents: int
    """Number of rows of the corpus: documents or passages."""
    document_bytes: float
    queries: int
    query_bytes: float
    pairs: int
    """Number of pairs of a query and its answer to train on, judged or generated. 0 if documents serve as queries."""
    measured: int
    """Number of judgements of the split on which the index is evaluated."""
    parameters: int
    """Number of parameters of the encoder's transformer without embeddings, which is the multiply-adds of one token."""
    dimension: int
    generated: int = 0
    reader: int = 0
    """Number of parameters of the cross-encoder, without embeddings. 0 without a cross-encoder."""


@dataclass(frozen=True)
class Cost:
    amount: float
    unit: str
    rate: float | None
    """Amount of work that one device does per second. None if the rate was not measured."""
    devices: float
    device: str = "core"
    of: str = ""
    """Description of what the speed depends on, such as the encoder. Empty if no rate is measured."""
    is_measured: bool = False
    """True if a run on this machine measured the rate."""
    start: float = START
    extra: float = 0.0
    """Seconds of one device for other work than `amount`, such as placing documents in leaves."""

    @property
    def seconds(self) -> float | None:
        return None if self.rate is None else self.start + (self.amount / self.rate + self.extra) / self.devices

    def measured(self, seconds: float) -> float | None:
        """Return the rate, per second and device, of a run that took `seconds`. None if the run was too short."""
        is_little = not self.amount or self.amount < LEAST_WORK * (self.rate or 0) * self.devices
        left = (seconds - self.start) * self.devices - self.extra
        return None if is_little or seconds < 2 * self.start or left < self.extra else self.amount / left


def stage_cost(
    stage: str, spec: JobSpec, work: Work, rates: Mapping[str, float] | None = None, *, on_ray: bool = True
) -> Cost:
    """Estimate the time of one run of a stage, preferably by measured rates. Train and index run once per seed."""
    cost = _cost(stage, spec, work)
    kind = f"{cost.unit} {cost.of} on a {cost.device}"
    own = f"train {spec.train.type} {spec.encoder.train}: {kind}" if stage == "train" else f"{stage}: {kind}"
    rate = next((rates[of] for of in (own, f"embed: {kind}") if rates and of in rates), None)
    return replace(
        cost,
        of=own,
        rate=rate or cost.rate,
        is_measured=rate is not None,
        start=START * POOLS.get(stage, 1) if on_ray else START_HERE,
    )


def _cost(stage: str, spec: JobSpec, work: Work) -> Cost:
    cluster, encoding = spec.cluster, spec.encoder.precision
    texts = work.documents * tokens(spec, work.document_bytes)
    match stage:
        case "embed":
            queries = (work.queries + work.generated) * tokens(spec, work.query_bytes)
            count = texts + queries + drawn_tokens(spec, work)
            return _passed(count, work.parameters, cluster.embed, encoding)
        case "test":
            count = work.measured * tokens(spec, work.query_bytes)
            cost = _passed(count, work.parameters, cluster.evaluate, encoding)
            return replace(cost, extra=work.documents / IDS * cost.devices)
        case "cross_encoder":
            return _read(spec, work, _training_pairs(spec, work), cluster.train)
        case "scores":
            return _read(spec, work, spec.scores.pairs(work.documents) if spec.scores else 0, cluster.embed)
        case "train":
            return _training(spec, work)
        case "index" if spec.encodes_again:
            return replace(_passed(texts, work.parameters, cluster.index, encoding), extra=_placing(spec, work))
        case "calibrate" if spec.chooses_beside:
            return _read(spec, work, DEV_PAIRS, cluster.evaluate)
        case "evaluate" if (rerank := spec.search.reranking) is not None:
            pairs = len(spec.evaluate.seeds) * work.measured * rerank.budget
            return _read(spec, work, pairs, cluster.evaluate)
        case "evaluate":
            systems = 1 + len(spec.evaluate.baselines)
            count = len(spec.evaluate.seeds) * work.measured * math.sqrt(work.documents) * systems
            return _counted(stage, count, cluster.evaluate, " ".join(spec.evaluate.baselines))
        case "factors" if spec.factors is not None:
            pairs = spec.scores.pairs(work.documents) if spec.scores else 0
            return _counted(stage, factor_passes(spec.factors, pairs) * pairs, cluster.train, spec.factors)
        case "calibrate":
            return _counted(stage, min(work.queries, MOST_QUERIES) * work.documents, cluster.evaluate)
        case "index":
            return _counted(stage, work.documents, cluster.index, spec.router.type)
        case "generate":
            return _counted(stage, work.generated, TrainWorkers())
        case _:
            return _counted(stage, work.documents, cluster.corpus, spec.corpus.type)


def _counted(stage: str, amount: float, workers: Workers, of: str = "") -> Cost:
    return _cost_on(workers, amount, *RATES[stage], of)


def _passed(amount: float, parameters: int, workers: Workers, precision: str, *, tokenised: bool = False) -> Cost:
    rate = FLOPS[precision == "float32"] / (2 * max(1, parameters))
    rate = rate if tokenised else min(TOKENISED, rate)  # a training tokenizes each text once
    return _cost_on(workers, amount, "tokens", rate, f"{parameters} {precision}")


def _cost_on(workers: Workers, amount: float, unit: str, rate: float, of: str) -> Cost:
    if workers.gpus:
        return Cost(amount, unit, None, workers.workers * workers.gpus, "GPU", of)
    return Cost(amount, unit, rate, workers.workers * workers.cpus, of=of)


def _read(spec: JobSpec, work: Work, pairs: float, workers: Workers) -> Cost:
    if (reads := spec.cross_encoder) is None:
        return Cost(0, "tokens", 1, 1)
    each = min(reads.max_length, 3 + (work.query_bytes + work.document_bytes) / BYTES_A_TOKEN)
    return _passed(pairs * each, work.reader, workers, reads.precision)


def _training_pairs(spec: JobSpec, work: Work) -> float:
    if spec.cross_encoder is None or (train := spec.cross_encoder.train) is None:
        return DEV_PAIRS
    groups = min(max(0, work.pairs - work.generated - (spec.scores.judged if spec.scores else 0)), MOST_PAIRS)
    return DEV_PAIRS * (1 + train.epochs) + BACKWARD * train.epochs * groups * (1 + WRONG)


def _training(spec: JobSpec, work: Work) -> Cost:
    train, documents = spec.train, work.documents
    phases, pairs = spec.phases(work.pairs, documents), work.pairs or min(documents, MOST_DRAWN)
    times = {name: epochs * (_trainings(spec, work) if name == "encoder" else 1) for name, epochs in phases.items()}
    if spec.encodes_again:
        document, query = tokens(spec, work.document_bytes), tokens(spec, work.query_bytes)
        epochs = sum(count for name, count in times.items() if name != "router")
        measured = 2 * epochs / train.between(max(1, max(phases.values(), default=1)))  # on dev, and mining
        count = BACKWARD * epochs * pairs * (2 * document + query) + measured * documents * document
        cost = _passed(count, work.parameters, spec.cluster.train, spec.encoder.precision, tokenised=True)
        return replace(cost, extra=measured * _placing(spec, work)) if train.routes else cost
    taught = spec.router.targets(work.pairs, documents)
    count = documents + sum(epochs * (taught if name == "router" else pairs) for name, epochs in times.items())
    return _counted("train", count, spec.cluster.train, spec.router.type)


def _placing(spec: JobSpec, work: Work) -> float:
    return work.documents * spec.leaves(work.documents) * work.dimension / PLACED


def _trainings(spec: JobSpec, work: Work) -> int:
    few = work.pairs > 0 and DEV * work.pairs < ENOUGH
    if not spec.trains_encoder_alone or spec.encoder.adopt == "always" or not few:
        return 1
    return 1 + min(FOLDS, math.ceil(ENOUGH * FOLDS / work.pairs))


def tokens(spec: JobSpec, mean_bytes: float) -> float:
    """Estimate the mean number of tokens of texts of `mean_bytes` bytes, each cut at the encoder's `max_length`."""
    return min(spec.encoder.max_length, 2 + mean_bytes / BYTES_A_TOKEN)


def drawn_tokens(spec: JobSpec, work: Work) -> float:
    """Estimate the tokens of all pseudo-queries (titles and spans of documents). 0 if the training uses none."""
    draws = spec.train.draws
    if draws is None:
        return 0.0
    title = tokens(spec, work.query_bytes) if draws.has_titles else 0.0
    length = tokens(spec, work.document_bytes)
    spans = SPANS * draws.length if draws.has_spans and length > draws.length else 0
    return min(MOST_DRAWN, work.documents) * (title + spans)
