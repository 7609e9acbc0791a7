"""A run's measures in MLflow and W&B, as their own readers show them; both without a server."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from wandb.proto import wandb_internal_pb2

from ..conftest import make_corpus, write_spec
from ..integration.in_process import make


def records(path: Path) -> Iterator[wandb_internal_pb2.Record]:
    """Records of a file of W&B: a header of 7 bytes, then LevelDB's log of blocks; W&B has no reader in Python."""
    data, place, whole = path.read_bytes(), 7, b""
    while place < len(data):
        if (left := 32_768 - place % 32_768) < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


@pytest.fixture(scope="module")
def run_with(tmp_path_factory, tiny_model):
    def ran(track):
        folder = tmp_path_factory.mktemp("track")
        lines = {"track": track.format(folder), "train": "{epochs: 2, batch_size: 16}"}
        make(write_spec(folder, make_corpus(folder / "corpus"), tiny_model, **lines))
        return folder

    return ran


def test_mlflow_has_a_run_for_training_and_one_for_evaluation(run_with):
    folder = run_with("{{type: mlflow, uri: 'sqlite:///{}/runs.db'}}")
    client = MlflowClient(f"sqlite:///{folder}/runs.db")
    experiment = client.get_experiment_by_name("tiny")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"train seed 0", "evaluate"}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    train, evaluation = runs["train seed 0"], runs["evaluate"]
    assert train.data.params["train.epochs"] == "2"
    assert (folder / "work" / "model" / train.data.tags["rayhier.artifact"]).is_dir()
    (metrics,) = (folder / "work" / "model").glob("*/*/metrics.json")
    expected = {
        f"{phase}/{name}".replace("@", "_"): value
        for phase, rows in json.loads(metrics.read_text()).items()
        for name, value in rows[-1].items()
        if name != "epoch"
    }
    assert expected
    assert {name: train.data.metrics[name] for name in expected} == pytest.approx(expected)
    report = json.loads((folder / "work" / "report.json").read_text())
    for name, row in report["systems"].items():
        assert evaluation.data.metrics[f"{name.replace('+', '_')}/nDCG_10"] == row["nDCG@10"]


def test_wandb_offline_keeps_the_runs_in_a_folder(run_with, monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    folder = run_with("{{type: wandb}}")
    histories = {}
    for path in (tmp_path / "wandb").glob("offline-run-*/run-*.wandb"):
        name, rows = "", []
        for record in records(path):
            name = record.run.display_name or name
            if record.HasField("history"):
                items = record.history.item
                rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
        histories[name] = rows
    report = json.loads((folder / "work" / "report.json").read_text())
    assert set(histories) == {"train seed 0", "evaluate"}
    assert len([row for row in histories["train seed 0"] if any(name.endswith("/dev") for name in row)]) >= 2
    shown = {name: value for row in histories["evaluate"] for name, value in row.items()}
    for name, row in report["systems"].items():
        assert shown[f"{name}/nDCG@10"] == row["nDCG@10"]
