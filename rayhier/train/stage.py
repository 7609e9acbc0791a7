"""Train the models of a job with workers that share each batch. A stopped training goes on from a checkpoint."""

import math
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rayhier.dataset.documents import language, load_documents, load_titled
from rayhier.dataset.holdout import holdout_rows
from rayhier.embed.export import export
from rayhier.embed.precision import agreed, as_embedded
from rayhier.executor import Executor, Row
from rayhier.model.adoption import Adoption, Source
from rayhier.model.encoder import save_trained, write_prompts
from rayhier.model.router import save_router
from rayhier.progress import Bar, log, say
from rayhier.spec import JobSpec
from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.ledger import Ledger, LedgerEntry
from rayhier.storage.model_folder import ModelFolder
from rayhier.storage.model_layout import QUERY_ENCODER
from rayhier.storage.paths import Location
from rayhier.threads import set_threads
from rayhier.track import Sink, tracked
from rayhier.train.adopt import FOLD
from rayhier.train.data import check_differences, count_pairs, has_dev, load_examples
from rayhier.train.group import WorkerGroup
from rayhier.train.loop import FEW_DEV, Loop, Phase, best_row
from rayhier.train.phases import Material, dev_and_spans, train
from rayhier.train.query_encoder import DOCUMENTS, distil, texts_of
from rayhier.train.tower import TextTower, build_tower, text_tower

METRICS, CHECKPOINT = "metrics.json", "checkpoint"
ENCODER_PHASES = ("encoder", "joint")
ENCODER, PERFECT = "encoder", 1.0
"""Name of the phase that ends at once if dev is perfect at its start, and the value of a perfect measure."""


def build(
    executor: Executor,
    spec: JobSpec,
    seed: int,
    model: ModelFolder,
    query_model: ModelFolder | None,
    corpus: Artifact,
    vectors: Artifact,
    attempt: Attempt,
    generated: Artifact | None = None,
) -> Output:
    """Train encoder and router. InputError if documents' vectors are all equal but must differ."""
    spec = as_embedded(spec, vectors, spec.cluster.train.gpus)
    if spec.train.needs_differences:
        check_differences(vectors)
    pairs = count_pairs(spec.train, corpus, generated)
    dev = corpus.record.counts["splits"]["dev"]
    draws = spec.train.draws
    drawn = draws is not None and (draws.source == "simcse" or vectors.record.counts.get("pseudo-queries", 0) > 0)
    _say_what_teaches(spec, supervised=pairs > 0, dev_queries=dev["queries"] if dev["relevant"] else 0, drawn=drawn)
    config = {"seed": seed, "model": model.path, "corpus": corpus, "vectors": vectors, "generated": generated}
    config["query_model"] = None if query_model is None else query_model.path
    phases = spec.phases(pairs, int(corpus.record.counts["rows"]))
    run_workers(executor, train_worker, spec, config, attempt, f"train seed {seed}", sum(phases.values()))
    history = files.read_json(attempt.root / METRICS)
    best = {phase: best_row(rows) for phase, rows in history.items()}
    if any(best[phase]["epoch"] == 0 for phase in ENCODER_PHASES if phase in best):
        log("  epoch 0, the state before training, is kept: no later epoch was better on dev")
    if (adoption := Adoption.read(attempt.root)) is not None:
        (log if dev["relevant"] else say)(f"  {adoption.sentence}")  # without judgements no verdict says it
    counts: dict[str, Any] = {"epochs": {phase: int(rows[-1]["epoch"]) for phase, rows in history.items()}}
    counts["best"] = best
    if spec.encoder.transformer_part is not None:
        counts["precision"] = _with_precision(spec, attempt.scratch).encoder.precision
    return Output(counts)


def run_workers(
    executor: Executor,
    worker: Callable[[dict[str, Any]], None],
    spec: JobSpec,
    config: dict[str, Any],
    attempt: Attempt,
    title: str,
    epochs: int,
) -> None:
    """Run training workers with a progress bar of `epochs` epochs.

    A worker gets `config`, with spec, title, the attempt's folders and fingerprint, and `report` for the bar.
    """
    config = {
        **config,
        "spec": spec,
        "root": attempt.root,
        "scratch": attempt.scratch,
        "artifact": attempt.place.folder.name,
        "title": title,
    }
    with Bar(title, max(1, epochs), "epochs") as bar:
        executor.train(worker, config, spec.cluster.train, partial(_show, bar))


def _show(bar: Bar, row: Row) -> None:
    if "total" in row:
        bar.expect(max(1, int(row["total"])))
        return
    loss = f"loss {row['loss_total']:.4f}  " if "loss_total" in row else ""
    balance = f"  imbalance {row['imbalance']:.2f}" if "imbalance" in row else ""
    bar.reach(int(row["reached"]), f"{row['phase']}: {loss}dev {row['dev']:.4f}{balance}")


def train_worker(config: dict[str, Any]) -> None:
    """Train from the newest checkpoint. The first worker writes encoder, router and measures."""
    set_threads(config["spec"].cluster.train.cpus)
    spec, seed = _with_precision(config["spec"], config["scratch"]), int(config["seed"])
    model, root, corpus, vectors, generated = (
        config[name] for name in ("model", "root", "corpus", "vectors", "generated")
    )
    spec = spec.model_copy(update={"router": spec.router.over(int(corpus.record.counts["rows"]))})
    documents = load_documents(corpus, vectors)
    examples = load_examples(spec.train, corpus, vectors, documents, generated)
    dev, spans = dev_and_spans(corpus, vectors, documents, generated)
    tower = build_tower(spec.encoder, model, corpus, documents, examples, dev, spans)
    tower.micro_batch = spec.cluster.train.micro_batch
    supervised = count_pairs(spec.train, corpus, generated) > 0
    phases = spec.phases(len(examples.pair_P2) if supervised else 0, len(documents.ids))
    titled = partial(load_titled, corpus, documents.ids)
    read = None
    if spec.router.reads == "tokens":
        texts = (spec.encoder, model, corpus, examples, dev)
        read = (tower if isinstance(tower, TextTower) else text_tower(*texts)).read
    held_N = np.zeros(0, np.int64) if has_dev(corpus) else holdout_rows(documents.ids)
    source: Source = "dev queries" if has_dev(corpus) else "pseudo-queries"
    material = Material(documents, examples, dev, phases, spans, titled, read, held_N, source, language(corpus))
    with ExitStack() as stack:
        run = Run(spec, phases, config, stack)
        router, adoption = train(spec, seed, tower, material, run)
    if run.group.rank > 0:
        return
    with files.filling(root / "encoder") as folder:
        tower.save(model, spec.encoder.max_length, folder)
        write_prompts(folder, spec.encoder)
        export(folder)
        if (base := config["query_model"]) is not None:
            some = texts_of(load_titled(corpus, documents.ids[:: -(-len(documents.ids) // DOCUMENTS)]))
            some += examples.query_texts if supervised else []
            small = distil(base, folder, spec.encoder, some, dev.texts if has_dev(corpus) else [], seed)
            with files.filling(root / QUERY_ENCODER) as queries:
                save_trained(small, spec.encoder.max_length, queries)
                export(queries)
    with files.filling(root / "router") as folder:
        save_router(router, folder)
    if adoption is not None:
        adoption.write(root)
    files.write_json(root / METRICS, run.history)


class Checkpoint:
    """The newest state of each phase, which the first worker saves in the attempt's scratch folder."""

    def __init__(self, scratch: Location) -> None:
        self._ledger = Ledger(scratch / "ledger", scratch)
        entry = self._ledger.done(CHECKPOINT)
        self._files = {} if entry is None else dict(zip(entry.counts["phases"], entry.files, strict=True))

    def load(self, name: str, loop: Loop) -> None:
        if (file := self._files.get(name)) is not None:
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / "state.safetensors"
                copy.write_bytes((self._ledger.root / file.name).read_bytes())
                loop.load(copy)

    def save(self, name: str, loop: Loop) -> None:
        """Save a phase's state. The states of earlier phases, saved at their ends, are kept."""
        before, root = self._files.get(name), self._ledger.root
        written = f"checkpoint/{name}-{loop.epoch}-{uuid.uuid4().hex[:8]}.safetensors"
        files.write(root / written, loop.save)
        self._files[name] = files.describe(root, written)
        self._ledger.enter(CHECKPOINT, LedgerEntry(tuple(self._files.values()), {"phases": list(self._files)}))
        if before is not None:
            (root / before.name).unlink(missing_ok=True)


class Run:
    def __init__(self, spec: JobSpec, epochs: dict[str, int], config: dict[str, Any], stack: ExitStack) -> None:
        self.checkpoint_seconds, self.epochs = spec.cluster.train.checkpoint_seconds, epochs
        self.report: Callable[[Row], None] = config["report"]
        self.group = WorkerGroup()
        self.loops: dict[str, Loop] = {}
        self.checkpoint = Checkpoint(config["scratch"])
        self.sink: Sink | None = None
        if self.group.rank == 0:
            board = stack.enter_context(files.filling(config["root"] / "tensorboard"))
            self.sink = stack.enter_context(tracked(spec, config["title"], config["artifact"], board))

    @property
    def history(self) -> dict[str, list[dict[str, float]]]:
        return {phase: loop.history for phase, loop in self.loops.items() if not phase.startswith(FOLD)}

    def __call__(self, name: str, phase: Phase) -> None:
        """Run the remaining passes of a phase, then restore its best weights (`best_row`)."""
        before = sum(self.epochs[earlier] for earlier in self.loops)
        self.epochs[name] = phase.epochs
        if self.sink is not None:
            self.report({"total": sum(self.epochs.values())})
        loop = self.loops[name] = Loop(phase, PERFECT if name == ENCODER else math.inf)
        self.checkpoint.load(name, loop)
        saved = time.monotonic()
        while not loop.ended:
            row = loop.run_epoch() if loop.started else loop.start()
            if row is not None and self.sink is not None:
                self.sink.log(name, row, loop.epoch)
                self.report({"phase": name, "reached": before + loop.epoch, **row})
            if self.group.agree(loop.ended or time.monotonic() - saved >= self.checkpoint_seconds):
                if self.group.rank == 0:
                    self.checkpoint.save(name, loop)
                saved = time.monotonic()
        if loop.stopped and not loop.epoch and self.sink is not None:
            say(f"  {name}: the base encoder already finds all that dev looks for, so nothing is trained")
        loop.restore_best()
        loop.learner.optimizer.state.clear()  # a finished phase needs only its weights, here and in checkpoints
        phase.finish()


def _with_precision(spec: JobSpec, scratch: Location) -> JobSpec:
    """Set the number format that all workers use, also after a restart. Training of a head alone uses float32."""
    if spec.encoder.transformer_part is None:
        return spec
    return spec.model_copy(update={"encoder": agreed(spec.encoder, Ledger(scratch / "ledger", scratch))})


def _say_what_teaches(spec: JobSpec, *, supervised: bool, dev_queries: int, drawn: bool) -> None:
    has_dev = dev_queries > 0
    if supervised and has_dev and dev_queries < FEW_DEV:
        queries = "query chooses" if dev_queries == 1 else "queries choose"
        say(f"  only {dev_queries} dev {queries} the best epoch, by chance: give a hundred as corpus.judgements.dev")
    if drawn:
        if not supervised:
            draws = spec.train.draws
            texts = "titles or first sentences" if draws is None or draws.source == "titles" else "pseudo-queries"
            say(f"  no train judgements are used: the encoder learns from {texts} of documents")
        if not has_dev and spec.train.generation is None:
            say("  no dev judgements: the best epoch is picked by pseudo-queries of held-out documents")
    if not has_dev and spec.train.generation is not None:
        say("  no dev judgements: the best epoch is picked by generated queries that are held out")
    if drawn or spec.train.generation is not None:
        return
    if not supervised and spec.train.routes:
        say("  no train judgements are used: documents serve as queries for their nearest neighbours")
    elif not supervised:
        say("  no train judgements are used: the encoder stays unchanged, the router is k-means")
    if not has_dev and (supervised or spec.train.routes):
        say("  no dev judgements: the best epoch is picked by held-out documents that search for their neighbours")
