"""A command that Ctrl-C stops, also while Ray trains."""

import signal
import threading
from queue import Queue

import pytest

from rayhier import run
from rayhier.executor import ray as adapter

SPEC = "name: a\nworkdir: {}\ncorpus: {{type: python_docs}}\nencoder: {{model: {}}}\n"


def test_a_stopped_command_says_how_to_go_on(tmp_path, tiny_model, monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("rayhier.job.run.run", stopped)
    (tmp_path / "spec.yaml").write_text(SPEC.format(tmp_path / "work", tiny_model))
    assert run.main([str(tmp_path / "spec.yaml")]) == 130
    assert capsys.readouterr().err == "stopped; the same command goes on where this one was\n"


class Endless:
    """A trainer that ends once told so, and in the main thread would take the signal for itself, as Ray's does."""

    def __init__(self):
        self.began, self.end = threading.Event(), threading.Event()

    def fit(self):
        assert threading.current_thread() is not threading.main_thread()
        self.began.set()
        self.end.wait()


@pytest.fixture
def listens():
    """Ctrl-C as a terminal sends it: a shell starts what it puts in the background with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_stops_training(listens):
    main, trainer = threading.main_thread().ident, Endless()

    def press():
        trainer.began.wait()
        signal.pthread_kill(main, signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        adapter._fit(trainer, Queue(), print)
    trainer.end.set()
    pressing.join()


class Broken:
    """A trainer that fails."""

    def fit(self):
        raise ValueError("as it was")


def test_what_training_raises_is_raised():
    with pytest.raises(ValueError, match="as it was"):
        adapter._fit(Broken(), Queue(), print)
