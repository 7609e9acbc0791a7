"""The sink of measures: several trackers, one that fails, what a spec may name; real ones: tests/neighbours."""

import sys
from types import ModuleType

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rayhier import track
from rayhier.spec import InputError, load


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(track, "say", lines.append)
    return lines


class Kept:
    def __init__(self):
        self.failing, self.rows, self.closed = "", [], []

    def log(self, group, values, step):
        if self.failing == "log":
            raise ConnectionError("no route\nto the host")
        self.rows.append((group, dict(values), step))

    def close(self, *, failed=False):
        self.closed.append(failed)


def test_a_tracker_that_fails_again_and_again_is_given_up_and_the_others_go_on(said):
    good, bad = Kept(), Kept()
    sink = track.Sink([bad, good])
    for step, bad.failing in enumerate(["log", "log", "", "log", "log", "log", ""]):
        sink.log("joint", {"dev": step / 2}, step)
    sink.close()
    assert [step for *_, step in bad.rows] == [2]
    assert good.rows == [("joint", {"dev": step / 2}, step) for step in range(7)]
    assert (good.closed, bad.closed) == ([False], [False])
    missing = [f"  track: Kept: no route. joint {step} is missing there" for step in (0, 1, 3, 4, 5)]
    assert said == [*missing, "  track: Kept: measures go there no longer"]


def test_a_run_that_fails_ends_as_failed(tiny_spec, monkeypatch):
    tracker = Kept()
    monkeypatch.setattr(track, "_opened", lambda *_: tracker)
    spec = load(tiny_spec(track="{type: wandb}"))
    with pytest.raises(RuntimeError), track.tracked(spec, "train", "abc"):
        raise RuntimeError
    assert tracker.closed == [True]


def test_tensorboard_has_all_that_is_logged_and_settings_are_flat(tiny_spec, tmp_path):
    values = track.flat(load(tiny_spec(track="{type: wandb}")))
    assert (values["name"], values["train.epochs"], values["corpus.type"]) == ("tiny", "3", "beir")
    assert not [name for name in values if name.startswith("track")]
    with track.tracked(load(tiny_spec()), "train", "abc", tmp_path / "board") as sink:
        for epoch in range(3):
            sink.log("encoder", {"loss": 0.5 - epoch / 8}, epoch)
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    assert [(row.step, row.value) for row in events.Scalars("encoder/loss")] == [(0, 0.5), (1, 0.375), (2, 0.25)]


def test_what_cannot_be_opened_is_said_and_training_goes_on(tiny_spec, tmp_path, monkeypatch, said):
    mlflow = ModuleType("mlflow")

    def client(*_, **__):
        raise OSError("disk I/O error")

    mlflow.MlflowClient = client
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", ModuleType("mlflow.entities"))
    spec = load(tiny_spec(track=f"{{type: mlflow, uri: sqlite:///{tmp_path}/runs.db}}"))
    with track.tracked(spec, "train", "abc", tmp_path / "board") as sink:
        sink.log("encoder", {"loss": 0.5}, 0)
    assert said == ["  track: disk I/O error. Measures do not go there"]
    monkeypatch.setattr(track.time, "sleep", lambda _: None)
    with pytest.raises(InputError, match=r"^track\.uri: sqlite:.*runs\.db does not answer: disk I/O error$"):
        track.check(spec)


@pytest.mark.parametrize("kind", ["{type: mlflow, uri: 'http://127.0.0.1:9'}", "{type: wandb}"])
def test_a_package_that_is_missing_is_named_before_work_begins(tiny_spec, monkeypatch, kind):
    name = kind.split()[1].strip(",}")
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"^track: {name} is not installed: pip install 'rayhier\[{name}\]'$"):
        track.check(load(tiny_spec(track=kind)))


def test_a_file_is_the_same_in_every_process(tiny_spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    for given, expected in (("runs.db", f"{tmp_path}/runs.db"), ("~/runs.db", "/home/me/runs.db")):
        spec = track.located(load(tiny_spec(track=f"{{type: mlflow, uri: 'sqlite:///{given}'}}")))
        assert spec.track.uri == f"sqlite:///{expected}"


def test_a_folder_that_cannot_be_written_is_refused(tiny_spec, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", f"{tmp_path}/file/runs")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"\$WANDB_DIR: .*file/runs cannot be written: Not a directory"):
        track.check(load(tiny_spec(track="{type: wandb}")))
