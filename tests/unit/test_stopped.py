"""Training on Ray is stopped by Ctrl-C, and raises what fails."""

import signal
import threading
from queue import Queue
from unittest.mock import Mock

import pytest

from rayhier.executor import ray as adapter


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


def test_what_training_raises_is_raised():
    with pytest.raises(ValueError, match="as it was"):
        adapter._fit(Mock(fit=Mock(side_effect=ValueError("as it was"))), Queue(), print)
