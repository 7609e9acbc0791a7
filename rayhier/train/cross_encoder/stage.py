"""Train a cross-encoder from its newest checkpoint, or publish the given cross-encoder if the spec trains none."""

from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.dataset.documents import Choice, language, load_documents, load_texts
from rayhier.dataset.holdout import hash_ids, held_queries
from rayhier.dataset.queries import Queries, load_queries
from rayhier.dataset.ranking import ID, Ranking
from rayhier.executor import Executor
from rayhier.model.cross_encoder import CrossEncoder, load_cross_encoder, save_cross_encoder
from rayhier.model.precision import best_device, resolve
from rayhier.progress import log
from rayhier.scores.scorer import SETTINGS, TRIED, PairScorer, Settings, read_pairs
from rayhier.search.segment.exact import exact_rows
from rayhier.spec import InputError, JobSpec
from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.storage import columns, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.cross_encoder_folder import CrossEncoderFolder
from rayhier.threads import set_threads
from rayhier.train.cross_encoder.groups import TrainingGroups
from rayhier.train.cross_encoder.phase import DEPTH, QUERIES, DevReranking, Reading
from rayhier.train.data import judged_pairs
from rayhier.train.loop import best_row
from rayhier.train.stage import METRICS, Run, run_workers

PHASE = "cross_encoder"
MOST_DOCUMENTS = 1_000_000
FIRST_WORDS = 12
NO_PAIRS = (
    "cross_encoder.train: no judged train pair is left in {}; allowed: more train judgements, "
    "a smaller scores.judged, or a trained model without cross_encoder.train"
)


def build(
    executor: Executor,
    spec: JobSpec,
    folder: CrossEncoderFolder,
    corpus: Artifact,
    vectors: Artifact,
    attempt: Attempt,
) -> Output:
    """Make a job's cross-encoder. InputError if a corpus has no judged train pair left to learn from."""
    reads = _cross(spec)
    if reads.train is not None and not train_queries(corpus, vectors, spec).answered:
        raise InputError(NO_PAIRS.format(corpus.folder))
    config = {"model": folder.path, "corpus": corpus, "vectors": vectors}
    epochs = 0 if reads.train is None else reads.train.epochs
    run_workers(executor, train_worker, spec, config, attempt, PHASE, epochs)
    settings = Settings.model_validate(files.read_json(attempt.root / SETTINGS))
    log(f"  precision {settings.precision}")
    counts: dict[str, Any] = {"settings": settings.model_dump(mode="json")}
    history = files.read_json(attempt.root / METRICS)
    if history.get(PHASE):
        counts |= {"best": best_row(history[PHASE]), "epochs": len(history[PHASE]) - 1}
    return Output(counts)


def train_worker(config: dict[str, Any]) -> None:
    spec, root, corpus, vectors = (config[name] for name in ("spec", "root", "corpus", "vectors"))
    reads = _cross(spec)
    set_threads(spec.cluster.train.cpus)
    seed = None if reads.train is None else 0
    model = load_cross_encoder(config["model"], reads.head, seed=seed).to(best_device())
    dev = _dev(corpus, vectors)
    with ExitStack() as stack:
        run = Run(spec, {}, config, stack)
        if reads.train is not None:
            run(PHASE, _phase(spec, reads.train.epochs, model, corpus, vectors, dev))
        if run.group.rank > 0:
            return
    with files.filling(root / "model") as filled:
        save_cross_encoder(model, reads.max_length, filled)
        scorer = PairScorer(filled, reads)
    pairs = _samples(corpus) if dev is None else dev.pairs[:TRIED]
    settings = Settings(precision=scorer.choose(*zip(*pairs, strict=True)))
    files.write_json(root / SETTINGS, settings.model_dump(mode="json"))
    files.write_json(root / METRICS, run.history)


def _phase(
    spec: JobSpec,
    epochs: int,
    model: CrossEncoder,
    corpus: Artifact,
    vectors: Artifact,
    dev: DevReranking | None,
) -> Reading:
    reads = _cross(spec)
    queries = train_queries(corpus, vectors, spec)
    documents = load_documents(corpus, vectors, sampled(corpus))
    texts = load_texts(corpus, documents.ids).to_pylist()
    groups = TrainingGroups(judged_pairs(queries, documents), texts, language(corpus))
    passed = 0

    def measure(model: CrossEncoder) -> dict[str, float]:
        nonlocal passed
        passed += 1
        if dev is None:
            return {"dev": float(passed)}  # the last epoch is kept
        return {"dev": dev.measured(dev.scores(lambda pairs: read_pairs(model, pairs, reads)))}

    dtype = resolve("auto" if reads.precision in ("auto", "float16") else reads.precision, best_device())
    return Reading(model, groups, reads, epochs, measure, dtype)


def sampled(corpus: Artifact) -> Choice | None:
    """Make a filter that keeps judged documents, and a sample of all others by hashes of ids. None keeps all."""
    rows = int(corpus.record.counts["rows"])
    if rows <= MOST_DOCUMENTS:
        return None
    paths = [corpus.path(f"judgements/{split}.parquet") for split in ("train", "dev")]
    paired = columns.read(paths, ["doc_id"])["doc_id"].combine_chunks().unique()
    below = int(max(MOST_DOCUMENTS - len(paired), 0) / rows * 2**64)

    def choose(ids: pa.ChunkedArray) -> pa.Array:
        drawn = pa.array(hash_ids(ids.to_pylist()) < below)
        return pc.or_(drawn, pc.is_in(ids.combine_chunks(), paired))

    return choose


def train_queries(corpus: Artifact, vectors: Artifact, spec: JobSpec) -> Queries:
    """Load the train queries, except those with the text of a dev query, or of a query that is kept for scores."""
    queries, apart = load_queries(corpus, vectors, "train"), set(load_queries(corpus, vectors, "dev").texts)
    if spec.scores is not None:
        kept_ids = set(held_queries(queries.ids, spec.scores.judged))
        apart |= {text for name, text in zip(queries.ids, queries.texts, strict=True) if name in kept_ids}
    return queries.some(np.array([text not in apart for text in queries.texts], dtype=bool))


def _dev(corpus: Artifact, vectors: Artifact) -> DevReranking | None:
    queries = load_queries(corpus, vectors, "dev")
    if not queries.answered:
        return None
    queries = queries.some(np.isin(queries.ids, held_queries(queries.ids, QUERIES)))
    documents = load_documents(corpus, vectors, sampled(corpus))
    texts = load_texts(corpus, documents.ids)
    zero_Q = np.zeros(len(queries), np.int64)
    best = exact_rows(queries.vector_QM, documents.vector_NM, documents.result_N, DEPTH)
    base = Ranking(*best, pa.table({ID: pa.array(documents.results, pa.string())}), zero_Q, zero_Q, zero_Q)
    return DevReranking(queries, base, lambda row_U: texts.take(pa.array(row_U)).to_pylist())


def _samples(corpus: Artifact) -> list[tuple[str, str]]:
    """Read pairs of a document's title, or first words, and text, to compare precisions without dev queries."""
    table = columns.read([corpus.path(corpus.names("documents/")[0])], ["title", "text"]).slice(0, TRIED)
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    return [(title or " ".join(text.split()[:FIRST_WORDS]), text) for title, text in rows]


def _cross(spec: JobSpec) -> CrossEncoderSpec:
    if spec.cross_encoder is None:
        raise ValueError("cross_encoder: got none; allowed: a cross-encoder, as in every planned stage")
    return spec.cross_encoder
