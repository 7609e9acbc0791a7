"""Killed in the middle: the rerun finishes, with every document exactly once."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rayhier import run
from rayhier.progress import Bar
from rayhier.storage import current, files
from rayhier.storage.artifact import Artifact

from ..conftest import one_worker_each, ray_processes, write_spec
from .in_process import make

POLL_SECONDS = 0.01
PATIENCE_SECONDS = 200.0
EPOCHS = {"encoder": 4, "router": 5}
LASTING = re.compile(r"\.(parquet|safetensors)$")
TRAIN = f"{{epochs: {EPOCHS['encoder']}, batch_size: 4}}"
ROUTER = "{type: learned_ivf, branching: 8}"
KINDS = ["corpus", "vectors", "test", "model", "index", "calibration", "evaluate"]

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(600), pytest.mark.slow]


def start(spec: Path) -> subprocess.Popen[bytes]:
    """A run without Ray in another process. Another temporary folder hides a cluster that another test started."""
    environment = {**os.environ, "RAY_ADDRESS": "", "OMP_NUM_THREADS": "1", "TMPDIR": str(spec.parent)}
    command = [sys.executable, "-m", "rayhier.run", str(spec)]
    with (spec.parent / "output").open("wb") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


def kill_once(spec: Path, seen: Callable[[], bool]) -> None:
    """Start a run, and SIGKILL it as soon as `seen`. The run must still be running then."""
    process, pause = start(spec), threading.Event()
    for _ in range(int(PATIENCE_SECONDS / POLL_SECONDS)):
        if seen():
            break
        assert process.poll() is None, f"it ended before it could be killed: {(spec.parent / 'output').read_text()}"
        pause.wait(POLL_SECONDS)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def registered(work: Path, phase: str) -> int | None:
    """Epochs over both phases at the newest checkpoint, once it is of this phase."""
    for saved in work.glob("model/*/*/scratch/ledger/checkpoint.json"):
        names = [file["name"] for file in json.loads(saved.read_text())["files"]]
        if any(f"/{phase}-" in name for name in names):
            return sum(int(name.split("-")[1]) for name in names)
    return None


def test_one_process_killed_in_each_stage(tiny_spec, tmp_path):
    """What is published then is what a run publishes that nobody killed. The training dies in both of its phases."""
    work, undisturbed = tmp_path / "work", tmp_path / "undisturbed"
    own = {"train": TRAIN, "router": ROUTER, "cluster": one_worker_each(train="{workers: 1, checkpoint_seconds: 0}")}
    spec = tiny_spec(**own)
    moments = [lambda kind=kind: bool(list(work.glob(f"{kind}/*/attempt-*/owner.json"))) for kind in KINDS]
    moments.insert(KINDS.index("model") + 1, lambda: (registered(work, "encoder") or 0) >= 2)
    moments.insert(KINDS.index("model") + 2, lambda: (registered(work, "router") or 0) >= EPOCHS["encoder"] + 2)
    for seen in moments:
        kill_once(spec, seen)
    assert start(spec).wait() == 0
    assert [len(list((work / kind).glob("*/attempt-*"))) for kind in KINDS] == [1] * len(KINDS)
    make(tiny_spec(**own, workdir=str(undisturbed)))
    for kind in KINDS[:-1]:
        made, other = (Artifact.open(next((folder / kind).iterdir())) for folder in (work, undisturbed))
        same = [
            [(file.name, file.sha256) for file in each.record.files if LASTING.search(file.name)]
            for each in (made, other)
        ]
        assert same[0] == same[1]
    history = files.read_json(current.artifact(work, current.read(work), "model").path("metrics.json"))
    for phase, epochs in EPOCHS.items():
        assert [row["epoch"] for row in history[phase]] == list(range(epochs + 1))


def prepared(embedded: Path, folder: Path, model: Path, workers: str) -> Path:
    """A spec for so many training workers, in a workdir with vectors."""
    shutil.copytree(embedded / "work", folder / "work")
    cluster = one_worker_each(train=f"{{{workers}, checkpoint_seconds: 0}}")
    return write_spec(folder, embedded / "corpus", model, train=TRAIN, router=ROUTER, cluster=cluster)


def trained(folder: Path) -> Artifact:
    return Artifact.open(next((folder / "work" / "model").iterdir()))


def test_a_killed_train_worker_goes_on_from_its_checkpoint(embedded, tiny_model, tmp_path, monkeypatch):
    """One of two workers is killed in each phase; the run ends as one of a single worker that nobody disturbed.

    A kill may repeat epochs that Ray had not registered yet, and no other.
    """
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", str(10 * POLL_SECONDS))
    reached: list[int] = []
    monkeypatch.setattr(Bar, "reach", lambda _, done, *__: reached.append(done))
    one, two = tmp_path / "one", tmp_path / "two"
    make(prepared(embedded, one, tiny_model, "workers: 1"), "train")
    reached.clear()
    kept: list[int] = []
    over = threading.Event()

    def kill() -> None:
        for phase in EPOCHS:
            while not over.wait(POLL_SECONDS):
                last = registered(two / "work", phase)
                if last is not None and (pids := list(ray_processes("TrainWorker"))):
                    os.kill(pids[0], signal.SIGKILL)
                    kept.append(last)
                    break

    spec = prepared(embedded, two, tiny_model, "workers: 2, least_workers: 1")
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        assert run.main([str(spec), "--stage", "train"]) == 0
    finally:
        over.set()
        killer.join()
    assert len(kept) == len(EPOCHS)
    boundary = EPOCHS["encoder"]  # where one phase ends and the next begins
    for epoch, times in Counter(reached).items():
        assert times <= 1 + (epoch == boundary) + sum(epoch > last for last in kept), (kept, reached)
    undisturbed, disturbed = trained(one), trained(two)
    histories = [files.read_json(model.path("metrics.json")) for model in (disturbed, undisturbed)]
    for name in EPOCHS:
        for row, other in zip(*(history[name] for history in histories), strict=True):
            assert row == pytest.approx(other, abs=1e-4)
    np.testing.assert_allclose(load(disturbed), load(undisturbed), atol=1e-4)


def load(model: Artifact) -> np.ndarray:
    from safetensors.numpy import load_file

    return load_file(model.path("encoder/2_Dense/model.safetensors"))["linear.weight"]
