"""A command that Ctrl-C stops, also while Ray trains."""

import signal
import threading
import time

import pytest

from rayhier import run
from rayhier.train import ray as train

SPEC = "name: a\nworkdir: {}\ncorpus: {{type: python_docs}}\nencoder: {{model: {}}}\n"


def test_a_stopped_command_says_how_to_go_on(tmp_path, tiny_model, monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run", stopped)
    (tmp_path / "spec.yaml").write_text(SPEC.format(tmp_path / "work", tiny_model))
    assert run.main([str(tmp_path / "spec.yaml")]) == 130
    assert capsys.readouterr().err == "stopped; the same command goes on where this one was\n"


class Endless:
    """A trainer that does not end, and in the main thread would take the signal for itself, as Ray's does."""

    def fit(self):
        assert threading.current_thread() is not threading.main_thread()
        time.sleep(40)


@pytest.fixture
def listens():
    """Ctrl-C as a terminal sends it: a shell starts what it puts in the background with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_stops_training(listens):
    main = threading.main_thread().ident
    threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT]).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        train._fit(Endless())
    assert time.monotonic() - began < 20


class Broken:
    """A trainer that fails."""

    def fit(self):
        raise ValueError("as it was")


def test_what_training_raises_is_raised():
    with pytest.raises(ValueError, match="as it was"):
        train._fit(Broken())
