"""Killed in the middle: the rerun finishes, with every document exactly once."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rayhier import run
from rayhier.storage import current, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import LeafMap

from ..conftest import ray_processes

POLL_SECONDS = 0.01
PATIENCE_SECONDS = 200.0
EPOCHS = {"encoder": 6, "router": 40}

pytestmark = pytest.mark.timeout(600)


TRAIN = "{epochs: 6, batch_size: 4, teaching: {epochs: 12, batch_size: 16}}"


@pytest.fixture
def docs_spec(tiny_spec: Callable[..., Path]) -> Path:
    """The docstrings of Python, several parts, under the tiny encoder."""
    return tiny_spec(
        corpus="{type: python_docs}",
        router="{type: learned_ivf, branching: 32}",
        train=f"{{epochs: {EPOCHS['encoder']}, teaching: {{epochs: {EPOCHS['router']}}}}}",
        evaluate="{measures: [R@10], lists: 8}",
        cluster="{embed: {workers: 1}, train: {checkpoint_seconds: 0}, index: {workers: 1}}",
    )


def start(spec: Path, out: Path) -> subprocess.Popen[bytes]:
    """A run in a process and a cluster of its own; its standard output goes to `out`."""
    environment = {**os.environ, "RAY_ADDRESS": "local", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rayhier.run", str(spec)]
    with out.open("wb") as opened:
        return subprocess.Popen(command, env=environment, stdout=opened, stderr=subprocess.DEVNULL)


def kill_once(process: subprocess.Popen[bytes], seen: Callable[[], bool]) -> None:
    """SIGKILL the driver as soon as `seen`; it must still be running then."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / POLL_SECONDS)):
        if seen():
            break
        assert process.poll() is None, "the run ended before it could be killed"
        pause.wait(POLL_SECONDS)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def checkpoints(work: Path, phase: str) -> list[Path]:
    """Saved states of a phase of the training."""
    return list(work.glob(f"model/*/*/scratch/ray/*/checkpoint_*/{phase}.safetensors"))


def test_the_driver_killed_in_both_phases_of_train_and_in_index(docs_spec: Path, tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"

    kill_once(start(docs_spec, out), lambda: len(checkpoints(work, "encoder")) >= 2)
    assert not checkpoints(work, "router")
    kill_once(start(docs_spec, out), lambda: len(checkpoints(work, "router")) >= 2)
    model = next((work / "model").iterdir())
    assert not (model / "record.json").exists()
    kill_once(start(docs_spec, out), lambda: bool(list(work.glob("index/*/*/scratch/ledger/routed-*.json"))))
    assert (model / "record.json").exists()
    assert not list(work.glob("index/*/record.json"))

    assert start(docs_spec, out).wait(timeout=PATIENCE_SECONDS) == 0
    summary = json.loads(out.read_bytes().splitlines()[-1])
    assert [step["state"] for step in summary["steps"]] == ["published"] * 3 + ["built"] * 2
    assert [len(list((work / kind).glob("*/attempt-*"))) for kind in ("model", "index")] == [1, 1]
    now = current.read(work)
    history = files.read_json(current.artifact(work, now, "model").path("metrics.json"))
    for phase, epochs in EPOCHS.items():
        assert [row["epoch"] for row in history[phase]] == list(range(epochs + 1))
    assert indexed(work) == expected(work)


def indexed(work: Path) -> list[str]:
    leaf_map = LeafMap.open(current.artifact(work, current.read(work), "index").root)
    tables = [leaf_map.read(shard, ["doc_id", "rank"]) for shard in leaf_map.manifest.shards]
    rows = [row for table in tables for row in table.to_pylist()]
    assert len({(row["doc_id"], row["rank"]) for row in rows}) == len(rows)
    return sorted(row["doc_id"] for row in rows if row["rank"] == 0)


def expected(work: Path) -> list[str]:
    corpus = current.artifact(work, current.read(work), "corpus")
    return sorted(
        one for name in corpus.names("documents/") for one in pq.read_table(corpus.path(name))["doc_id"].to_pylist()
    )


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("phase", EPOCHS)
def test_a_killed_train_worker_goes_on_from_its_checkpoint(
    phase: str, tiny_spec: Callable[..., Path], tmp_path: Path
) -> None:
    """One of two workers is killed; the run ends as one of a single worker that nobody disturbed."""
    killed: list[int] = []

    def kill(work: Path, over: threading.Event) -> None:
        while not over.wait(POLL_SECONDS) and not killed:
            if checkpoints(work, phase):
                for pid in list(ray_processes("TrainWorker"))[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    histories = []
    for name in ("disturbed", "undisturbed"):
        work, over = tmp_path / name, threading.Event()
        killer = threading.Thread(target=kill, args=(work, over))
        if name == "disturbed":
            killer.start()
        workers = "workers: 2, least_workers: 1" if name == "disturbed" else "workers: 1"
        cluster = f"{{train: {{{workers}, checkpoint_seconds: 0}}}}"
        spec = str(tiny_spec(workdir=str(work), train=TRAIN, cluster=cluster))
        assert run.main([spec, "--stage", "corpus", "--stage", "embed", "--stage", "train"]) == 0
        over.set()
        if name == "disturbed":
            killer.join()
        histories.append(files.read_json(only(work / "model").path("metrics.json")))
    assert killed
    for name in EPOCHS:
        for one, other in zip(*(history[name] for history in histories), strict=True):
            assert one == pytest.approx(other, abs=1e-4)
    heads = [load(only(tmp_path / name / "model")) for name in ("disturbed", "undisturbed")]
    np.testing.assert_allclose(heads[0], heads[1], atol=1e-4)


def only(kind: Path) -> Artifact:
    return Artifact.open(next(kind.iterdir()))


def load(model: Artifact) -> np.ndarray:
    from safetensors.numpy import load_file

    return load_file(model.path("encoder/2_Dense/model.safetensors"))["linear.weight"]
