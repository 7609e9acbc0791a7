"""The train stage on Ray Train: workers that share each batch, restarted from their newest checkpoint."""

import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray.train
import torch
from obstore.fsspec import BufferedFile, FsspecStore
from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.util.queue import Empty, Queue

from rayhier.dataset.documents import load_documents, load_titled
from rayhier.dataset.holdout import holdout_rows
from rayhier.embed.precision import agreed, as_embedded
from rayhier.model.adoption import Adoption, Source
from rayhier.model.router import save_router
from rayhier.progress import Bar, say
from rayhier.spec import JobSpec
from rayhier.spec.cluster import TrainWorkers
from rayhier.spec.train.common import MOST_DOCUMENTS
from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.ledger import Ledger
from rayhier.storage.model_folder import ModelFolder
from rayhier.storage.paths import Location
from rayhier.storage.remote import CLIENT
from rayhier.track import Sink, tracked
from rayhier.train.adopt import FOLD
from rayhier.train.data import check_differences, count_pairs, has_dev, load_examples, sampled
from rayhier.train.group import WorkerGroup
from rayhier.train.loop import FEW_DEV, Loop, Phase, best_row
from rayhier.train.phases import Material, dev_and_spans, train
from rayhier.train.tower import TextTower, build_tower, text_tower

MAX_FAILURES = 3
METRICS = "metrics.json"
ENCODER_PHASES = ("encoder", "joint")
ENCODER, PERFECT = "encoder", 1.0
"""Name of the phase that ends at once where dev is perfect at its start, and the value of a perfect measure."""


def build(
    spec: JobSpec,
    seed: int,
    model: ModelFolder,
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
    _say_what_teaches(spec, supervised=pairs > 0, dev_queries=dev["queries"] if dev["relevant"] else 0)
    config = {"seed": seed, "model": model.path, "corpus": corpus, "vectors": vectors, "generated": generated}
    phases = spec.phases(pairs, int(corpus.record.counts["rows"]))
    run_workers(train_worker, spec, config, attempt, f"train seed {seed}", sum(phases.values()))
    history = files.read_json(attempt.root / METRICS)
    best = {phase: best_row(rows) for phase, rows in history.items()}
    if any(best[phase]["epoch"] == 0 for phase in ENCODER_PHASES if phase in best):
        say("  epoch 0 is kept, where training began: no later one measured better on dev")
    if (adoption := Adoption.read(attempt.root)) is not None:
        say(f"  {adoption.sentence}")
    counts: dict[str, Any] = {"epochs": {phase: int(rows[-1]["epoch"]) for phase, rows in history.items()}}
    counts["best"] = best
    if spec.encoder.transformer_part is not None:
        counts["precision"] = _with_precision(spec, attempt.scratch).encoder.precision
    return Output(counts)


def run_workers(
    worker: Callable[[dict[str, Any]], None],
    spec: JobSpec,
    config: dict[str, Any],
    attempt: Attempt,
    title: str,
    epochs: int,
) -> None:
    """Run Ray Train's workers to their end, with a progress bar of `epochs` epochs.

    A worker gets `config`, with spec, title, the attempt's folders and fingerprint, and a queue `progress` for the bar.
    """
    progress = Queue(actor_options={"num_cpus": 0})
    filesystem, path = arrow_filesystem(attempt.scratch / "ray")
    trainer = TorchTrainer(
        worker,
        train_loop_config={
            **config,
            "spec": spec,
            "root": attempt.root,
            "scratch": attempt.scratch,
            "artifact": attempt.place.folder.name,
            "title": title,
            "progress": progress,
        },
        scaling_config=_scaling(spec.cluster.train),
        run_config=RunConfig(
            name=attempt.place.folder.name,
            storage_path=path,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(max_failures=MAX_FAILURES),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    with Bar(title, max(1, epochs), "epochs") as bar:
        finished = threading.Event()
        follower = threading.Thread(target=_follow, args=(progress, bar, finished), daemon=True)
        follower.start()
        try:
            _fit(trainer)
        finally:
            finished.set()
            follower.join()
            progress.shutdown()


def _fit(trainer: TorchTrainer) -> None:
    """Train in a thread: in the main one Ray would handle Ctrl-C itself, even for later stages."""
    failed: list[BaseException] = []

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:  # noqa: BLE001  raised again below
            failed.append(error)

    thread = threading.Thread(target=fit, name="train", daemon=True)
    thread.start()
    while thread.is_alive():  # a signal just before an endless wait would not be seen
        thread.join(1.0)
    if failed:
        raise failed[0]


def train_worker(config: dict[str, Any]) -> None:
    """Train from the newest checkpoint. The first worker writes encoder, router and measures."""
    torch.set_num_threads(config["spec"].cluster.train.cpus)
    spec, seed = _with_precision(config["spec"], config["scratch"]), int(config["seed"])
    model, root, corpus, vectors, generated = (
        config[name] for name in ("model", "root", "corpus", "vectors", "generated")
    )
    spec = spec.model_copy(update={"router": spec.router.over(int(corpus.record.counts["rows"]))})
    choice = sampled(corpus, MOST_DOCUMENTS, generated)
    documents = load_documents(corpus, vectors, choice)
    examples = load_examples(spec.train, corpus, vectors, documents, generated)
    dev, spans = dev_and_spans(corpus, vectors, documents, generated)
    tower = build_tower(spec.encoder, model, corpus, documents, examples, dev, spans)
    tower.micro_batch = spec.cluster.train.micro_batch
    supervised = count_pairs(spec.train, corpus, generated) > 0
    phases = spec.phases(len(examples.pair_P2) if supervised else 0, len(documents.ids))
    titled = partial(load_titled, corpus, documents.ids)
    read = None
    if spec.router.reads == "tokens":
        texts = (spec.encoder, model, corpus, documents, examples, dev)
        read = (tower if isinstance(tower, TextTower) else text_tower(*texts)).read
    held_N = np.zeros(0, np.int64) if has_dev(corpus) else holdout_rows(documents.ids)
    source: Source = "dev queries" if has_dev(corpus) else "pseudo-queries"
    material = Material(documents, examples, dev, phases, choice is not None, spans, titled, read, held_N, source)
    with ExitStack() as stack:
        run = Run(spec, phases, config, stack)
        router, adoption = train(spec, seed, tower, material, run)
    if run.group.rank > 0:
        return
    with files.filling(root / "encoder") as folder:
        tower.save(model, spec.encoder.max_length, folder)
    with files.filling(root / "router") as folder:
        save_router(router, folder)
    if adoption is not None:
        adoption.write(root)
    files.write_json(root / METRICS, run.history)


class Run:
    def __init__(self, spec: JobSpec, epochs: dict[str, int], config: dict[str, Any], stack: ExitStack) -> None:
        self.checkpoint_seconds, self.epochs = spec.cluster.train.checkpoint_seconds, epochs
        self.progress: Queue = config["progress"]
        self.group = WorkerGroup()
        self.loops: dict[str, Loop] = {}
        self.checkpoint = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if (saved := ray.train.get_checkpoint()) is not None:
            with saved.as_directory() as folder:  # Ray removes it once newer ones are saved
                shutil.copytree(folder, self.checkpoint, dirs_exist_ok=True)
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
            self.progress.put_nowait({"total": sum(self.epochs.values())})
        loop = self.loops[name] = Loop(phase, PERFECT if name == ENCODER else math.inf)
        if (state := self.checkpoint / f"{name}.safetensors").exists():
            loop.load(state)
        saved = time.monotonic()
        while not loop.ended:
            row = loop.run_epoch() if loop.started else loop.start()
            if row is not None and self.sink is not None:
                self.sink.log(name, row, loop.epoch)
                self.progress.put_nowait({"phase": name, "reached": before + loop.epoch, **row})
            if self.group.agree(loop.ended or time.monotonic() - saved >= self.checkpoint_seconds):
                self._save()
                saved = time.monotonic()
        if loop.stopped and not loop.epoch and self.sink is not None:
            say(f"  {name}: dev is perfect at the start, so nothing is trained")
        loop.restore_best()
        loop.learner.optimizer.state.clear()  # a phase that is over needs only its weights, here and in checkpoints
        phase.finish()

    def _save(self) -> None:
        metrics = {"epoch": sum(loop.epoch for loop in self.loops.values())}
        if self.group.rank > 0:
            ray.train.report(metrics)
            return
        with tempfile.TemporaryDirectory() as folder:
            for phase, loop in self.loops.items():
                loop.save(Path(folder) / f"{phase}.safetensors")
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def _with_precision(spec: JobSpec, scratch: Location) -> JobSpec:
    """Set the number format in which all workers compute, also after a restart; a head alone computes in float32."""
    if spec.encoder.transformer_part is None:
        return spec
    return spec.model_copy(update={"encoder": agreed(spec.encoder, Ledger(scratch / "ledger", scratch))})


def _say_what_teaches(spec: JobSpec, *, supervised: bool, dev_queries: int) -> None:
    has_dev = dev_queries > 0
    if supervised and has_dev and dev_queries < FEW_DEV:
        queries = "query chooses" if dev_queries == 1 else "queries choose"
        say(f"  only {dev_queries} dev {queries} the best epoch, by chance: give a hundred as corpus.judgements.dev")
    if spec.train.draws is not None:
        if not supervised:
            say("  no train judgements are used: pseudo-queries, drawn from documents, look for their documents")
        if not has_dev and spec.train.generation is None:
            say("  no dev judgements: the best epoch is picked by pseudo-queries of held-out documents")
    if not has_dev and spec.train.generation is not None:
        say("  no dev judgements: the best epoch is picked by generated queries that are held out")
    if spec.train.draws is not None or spec.train.generation is not None:
        return
    if not supervised and spec.train.routes:
        say("  no train judgements are used: documents serve as queries for their nearest neighbours")
    elif not supervised:
        say("  no train judgements are used: the encoder stays unchanged, the router is k-means")
    if not has_dev and (supervised or spec.train.routes):
        say("  no dev judgements: the best epoch is picked by held-out documents that search for their neighbours")


def _scaling(workers: TrainWorkers) -> ScalingConfig:
    least = workers.least_workers
    return ScalingConfig(
        num_workers=workers.workers if least is None else (least, workers.workers),
        use_gpu=workers.gpus > 0,
        resources_per_worker={"CPU": workers.cpus, **({"GPU": workers.gpus} if workers.gpus else {})},
    )


def _follow(progress: Queue, bar: Bar, finished: threading.Event) -> None:
    while not finished.is_set():
        try:
            row = progress.get(timeout=0.5)
        except Empty:
            continue
        if "total" in row:
            bar.expect(max(1, int(row["total"])))
            continue
        loss = f"loss {row['loss_total']:.4f}  " if "loss_total" in row else ""
        balance = f"  imbalance {row['imbalance']:.2f}" if "imbalance" in row else ""
        bar.reach(int(row["reached"]), f"{row['phase']}: {loss}dev {row['dev']:.4f}{balance}")


class _File(BufferedFile):
    def write(self, data: Any) -> int:
        """Write data as bytes: pyarrow passes signed bytes, which the store refuses."""
        return super().write(bytes(data))


class _Store(FsspecStore):
    def _open(self, path: str, mode: Any = "rb", **_options: Any) -> Any:  # type: ignore[override]
        return _File(self, path, mode)


def arrow_filesystem(place: Location) -> tuple[FileSystem | None, str]:
    """Return a pyarrow file system for a place in a bucket (None: a local place), and the path in it."""
    if isinstance(place, Path):
        return None, str(place)
    scheme, _, bucket = place.bucket.partition("://")
    store = _Store(scheme, client_options=CLIENT)  # type: ignore[call-overload]
    return PyFileSystem(FSSpecHandler(store)), f"{bucket}/{place.key}"
