"""Run the stages test, calibrate and evaluate."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rayhier.arrays import Floats
from rayhier.corpus import ids, questions, requirements, sources, tables
from rayhier.corpus.questions import Questions
from rayhier.embed.encode import TextEncoder
from rayhier.embed.precision import as_embedded
from rayhier.evaluate.calibrate import calibrate
from rayhier.evaluate.evaluation import baselines, evaluate
from rayhier.evaluate.output import REPORT, write
from rayhier.evaluate.report import NAME, Report
from rayhier.evaluate.samples import samples
from rayhier.executor import Executor, Pool, Row
from rayhier.progress import Bar, here, log, say
from rayhier.search.native import form
from rayhier.search.routing.query_precision import QueryPrecision
from rayhier.search.words.fusion_weight import FusionWeight
from rayhier.spec import JobSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import columns, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.model_folder import ModelFolder
from rayhier.storage.paths import Location
from rayhier.threads import set_threads
from rayhier.track import tracked


class Measure:
    """Actor that measures an index and its baselines with the CPUs of all workers, and writes the report."""

    def __init__(self, spec: JobSpec, cpus: int, root: Location, measured: Mapping[str, Any]) -> None:
        self.spec, self.cpus, self.root, self.measured = spec, cpus, root, measured

    def __call__(self, _: Row) -> Iterator[Row]:
        set_threads(self.cpus)
        evaluation = yield from evaluate(self.spec, **self.measured)
        write(self.spec, evaluation, self.root)
        judged = self.measured["corpus"] if self.measured["test"] is None else self.measured["test"]
        written = [(self.root / REPORT).read_text(), *samples(self.spec, self.measured["corpus"], judged, self.root)]
        files.replace(self.root / REPORT, "\n".join(written).encode())


def build(
    executor: Executor,
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    models: Mapping[int, tuple[Artifact, Artifact]],
    attempt: Attempt,
    read: Mapping[tuple[str, int | None], Artifact] | None = None,
    test: Artifact | None = None,
) -> Output:
    """Measure each seed's (model, index) and write the report. `read`: what searches read. `test`: the test split."""
    workers = spec.cluster.evaluate
    spec = as_embedded(spec, vectors, workers.gpus)
    cpus = workers.workers * workers.cpus
    measured = {"corpus": corpus, "vectors": vectors, "models": dict(models), "read": read, "test": test}
    arguments = {"spec": spec, "cpus": cpus, "root": attempt.root, "measured": measured}
    pool = Pool(Measure, arguments, workers.model_copy(update={"workers": 1, "cpus": cpus}))
    systems = 1 + len(baselines(spec)) + spec.measures_words + (spec.search.reranking is not None)
    with Bar("evaluate", len(models) * systems, "systems") as bar:
        for row in executor.stream([{"evaluate": ""}], pool):
            bar.advance(note=row["system"])
    report = Report.read(attempt.root / NAME)
    with (
        files.filling(attempt.root / "tensorboard") as board,
        tracked(spec, "evaluate", attempt.place.folder.name, board) as sink,
    ):
        for name, system in report.systems.items():
            sink.log(name, {"visited": system.visited, **system.measures}, 0)
    return Output({"documents": report.documents, "queries": report.queries, "seeds": report.seeds})


def build_test(
    executor: Executor, spec: JobSpec, model: ModelFolder, corpus: Artifact, vectors: Artifact, attempt: Attempt
) -> Output:
    """Publish the test split as a separate artifact, so that other test queries change nothing that was trained."""
    queries, rows = read_test(spec, corpus)
    workers = spec.cluster.evaluate
    encoder = as_embedded(spec, vectors, workers.gpus).encoder
    texts = queries["text"].to_pylist()
    vector_QM = executor.call(_encode, workers, encoder, model.path, texts, workers.cpus)
    return write_test(attempt.root, queries, vector_QM, rows)


def read_test(spec: JobSpec, corpus: Artifact) -> tuple[pa.Table, Questions]:
    """Read the spec's test split. Returns judged queries, and all rows. InputError if the split lacks answers."""
    everything = questions.read(sources.reader(spec.corpus), ids.IdSet(ids.of(ids.of_documents(corpus))))
    rows = everything.of_test()
    requirements.check_judgements(rows.counts())
    if spec.evaluate.split == "test":
        requirements.check_split(spec, rows.counts(), corpus.record.counts)
    judged = {judgement.query_id for judgement in rows.splits["test"]}
    return tables.queries_table([query for query in everything.accepted_queries if query.key in judged]), rows


def write_test(root: Location, queries: pa.Table, vector_QM: Floats, rows: Questions) -> Output:
    counts = rows.counts() | {"judged": len(queries)}
    for line in tables.lines(counts):
        log(line)
    for note in tables.notes(counts):
        say(f"  {note}")
    if counts["queries"]["rejected"] or counts["judgements"]["test"]["rejected"]:
        say(f"  rejected rows: {here(root / tables.REJECTED)}")
    with_vectors = queries.append_column("vector", columns.vector_column(vector_QM, pa.float32()))
    return Output(counts, tuple(tables.write(root, with_vectors, rows.splits, rows.rejected())))


def _encode(spec: EncoderSpec, model: Path, texts: Sequence[str], cpus: int) -> Floats:
    set_threads(cpus)
    return TextEncoder(model, spec).encode(texts, "query")


def build_calibration(
    executor: Executor,
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    model: Artifact,
    index: Artifact,
    attempt: Attempt,
    cross_encoder: Artifact | None = None,
) -> Output:
    workers = spec.cluster.evaluate
    read = corpus, vectors, model, index, attempt.root, cross_encoder
    counts, scan = executor.call(_calibrate, workers, spec, *read)
    say(f"  calibrate: scanned by {scan}")
    if "queries" in counts:
        log(f"  calibrate: {counts['queries']:,} queries choose a beam, by the exact best {counts['k']:,} of each")
    if "weight" in counts:
        weight = FusionWeight.read(attempt.root)
        by = weight is not None and weight.queries and f"chosen by {weight.chosen_by}"
        log(f"  calibrate: BM25's weight {counts['weight']:g}, {by or 'as usual without dev queries'}")
    if (precision := QueryPrecision.read(attempt.root)) is not None:
        by_float32, by_int8 = precision.measured["float32"], precision.measured["int8"]
        log(
            f"  calibrate: queries are encoded in {precision.chosen}: by {precision.queries:,} dev queries "
            f"{precision.measure} is {by_float32:.4f} in float32 and {by_int8:.4f} in int8"
        )
    if "beside" in counts:
        pays = "" if counts["read"] > counts["searched"] else "; re-ranking does not pay"
        log(
            f"  calibrate: the search's score has weight {counts['beside']:g}, the cross-encoder's has weight 1: by "
            f"{counts['reranked']:,} dev queries nDCG@10 {counts['searched']:.3f} -> {counts['read']:.3f}{pays}"
        )
    elif spec.chooses_beside:
        log("  calibrate: the search's score has weight 0, because no dev queries choose a weight")
    return Output(counts)


def _calibrate(spec: JobSpec, *read: Any) -> tuple[dict[str, float], str]:
    set_threads(spec.cluster.evaluate.cpus)
    return calibrate(spec, *read), form()
