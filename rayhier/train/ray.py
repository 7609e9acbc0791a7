"""The train stage on Ray Train: workers that share each batch, restarted from their newest checkpoint."""

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.util.queue import Empty, Queue
from torch.utils.tensorboard import SummaryWriter

from rayhier.evaluate.data import in_memory, load_dev, load_documents
from rayhier.model.router import save_router
from rayhier.progress import Bar, say
from rayhier.spec import JobSpec
from rayhier.spec.cluster import TrainWorkers
from rayhier.storage import arrow, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Made
from rayhier.storage.model_folder import ModelFolder
from rayhier.storage.paths import locate
from rayhier.train.data import load_examples
from rayhier.train.dev import DevMeasure
from rayhier.train.sides import build_tower
from rayhier.train.trainer import Trainer

MAX_FAILURES = 3
METRICS = "metrics.json"


def build(spec: JobSpec, seed: int, model: ModelFolder, corpus: Artifact, vectors: Artifact, attempt: Attempt) -> Made:
    """Train head and router; writes `encoder/`, `router/`, `metrics.json` and `tensorboard/`."""
    judged = corpus.record.counts["splits"]["train"]["relevant"]
    if spec.train.objective == "documents" or not judged:
        say("  no train judgements are used: documents serve as queries for their nearest neighbours")
    if not corpus.record.counts["splits"]["dev"]["relevant"]:
        say("  no dev judgements: held-out documents that look for their nearest neighbours pick the best epoch")
    progress = Queue(actor_options={"num_cpus": 0})
    filesystem, path = arrow.filesystem(attempt.scratch / "ray")
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={
            "spec": spec.model_dump(mode="json"),
            "seed": seed,
            "model": str(model.path),
            "corpus": str(corpus.folder),
            "vectors": str(vectors.folder),
            "root": str(attempt.root),
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
    with Bar(f"train seed {seed}", spec.train.epochs, "epochs") as bar:
        finished = threading.Event()
        follower = threading.Thread(target=_follow, args=(progress, bar, finished), daemon=True)
        follower.start()
        try:
            trainer.fit()
        finally:
            finished.set()
            follower.join()
            progress.shutdown()
    history = files.read_json(attempt.root / METRICS)
    best = max(history, key=lambda row: row["dev"])
    if best["epoch"] == 0:
        say("  epoch 0 is kept: no training epoch measured better on dev, so the encoder is as it came")
    return Made({"epochs": spec.train.epochs, "best": best})


def train_worker(config: dict[str, Any]) -> None:
    """One Ray Train worker: go on from the newest checkpoint, train; the first writes the best model."""
    spec = JobSpec.model_validate(config["spec"])
    torch.set_num_threads(spec.cluster.train.cpus)
    root = locate(config["root"])
    corpus, vectors = Artifact.open(locate(config["corpus"])), Artifact.open(locate(config["vectors"]))
    documents = load_documents(corpus, vectors)
    dev = load_dev(corpus, vectors, in_memory(documents))
    examples = load_examples(spec.train, corpus, vectors, documents)
    tower = build_tower(spec.encoder, Path(config["model"]), corpus, documents, examples, dev)
    trainer = Trainer(tower, examples, spec.router, spec.train, config["seed"], DevMeasure(dev, documents.results))
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            trainer.load(Path(folder))
    if trainer.group.rank > 0:
        _train(trainer, config["progress"], None, spec.cluster.train.checkpoint_seconds)
        return
    with files.filling(root / "tensorboard") as events, SummaryWriter(str(events), purge_step=trainer.epoch) as board:
        _train(trainer, config["progress"], board, spec.cluster.train.checkpoint_seconds)
    trainer.restore_best()
    with files.filling(root / "encoder") as folder:
        tower.save(Path(config["model"]), spec.encoder.max_length, folder)
    with files.filling(root / "router") as folder:
        save_router(trainer.router, folder)
    files.write_json(root / METRICS, trainer.history)


def _train(trainer: Trainer, progress: Queue, board: SummaryWriter | None, checkpoint_seconds: float) -> None:
    """Every epoch that is left; the first worker notes what it measured and says when a checkpoint is due."""
    saved = time.monotonic()
    while not trainer.finished:
        row = trainer.run_epoch() if trainer.started else trainer.start()
        if row is not None and board is not None:
            for name, value in row.items():
                board.add_scalar(name, value, trainer.epoch)
            progress.put_nowait(row)
        if trainer.group.agree(trainer.finished or time.monotonic() - saved >= checkpoint_seconds):
            _checkpoint(trainer)
            saved = time.monotonic()


def _checkpoint(trainer: Trainer) -> None:
    """All workers report; what they share is saved by the first."""
    metrics = {"epoch": trainer.epoch}
    if trainer.group.rank > 0:
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        trainer.save(Path(folder))
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def _scaling(workers: TrainWorkers) -> ScalingConfig:
    least = workers.least_workers
    return ScalingConfig(
        num_workers=workers.workers if least is None else (least, workers.workers),
        use_gpu=workers.gpus > 0,
        resources_per_worker={"CPU": workers.cpus, **({"GPU": workers.gpus} if workers.gpus else {})},
    )


def _follow(progress: Queue, bar: Bar, finished: threading.Event) -> None:
    """Show what the worker notes until the run is over."""
    while not finished.is_set():
        try:
            row = progress.get(timeout=0.5)
        except Empty:
            continue
        loss = f"loss {row['loss_total']:.4f}  " if "loss_total" in row else ""
        bar.reach(int(row["epoch"]), f"{loss}dev {row['dev']:.4f}  imbalance {row['imbalance']:.2f}")
