"""What a cluster can never give is refused, by kind and node; how Ray is joined, and how training on it is stopped."""

import re
import signal
import socket
import threading
from contextlib import nullcontext
from queue import Queue
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from rayhier.executor import cluster
from rayhier.executor import ray as adapter
from rayhier.spec import InputError, load

TWO_NODES = [{"CPU": 8.0, "GPU": 4.0}, {"CPU": 2.0, "GPU": 1.0}]


@pytest.fixture
def check(tiny_spec, monkeypatch):
    """`check("KEY=VALUE", …)`: the tiny spec's workers on two nodes, and a third that is gone."""
    nodes = [{"Alive": True, "Resources": held} for held in TWO_NODES]
    gone = {"Alive": False, "Resources": {"CPU": 1000.0, "GPU": 1000.0}}
    monkeypatch.setattr("ray.nodes", lambda: [*nodes, gone])
    return lambda *overrides: adapter.check_resources(load(tiny_spec(cluster="{}"), overrides))


GIVEN = {
    "cluster.corpus={workers: 10}": None,
    "cluster.corpus={workers: 11}": "cluster.corpus: got 11 workers x 1 CPUs = 11; allowed: at most",
    "cluster.embed={workers: 6, gpus: 1}": "cluster.embed: got 6 workers x 1 GPUs = 6; allowed: at most",
    "cluster.index={workers: 10, gpus: 0.6}": "cluster.index: got 10 workers x 0.6 GPUs = 6; allowed: at most",
    "cluster.index={workers: 8, gpus: 0.6}": "at most 7 workers of this size, because nodes have [4.0, 1.0] GPUs",
    "cluster.index={workers: 3, cpus: 1, gpus: 2}": "cluster.index: got 3 workers x 2 GPUs = 6",
    "cluster.index={workers: 1, gpus: 5}": "allowed: at most 4 GPUs per worker, as on the largest node",
    "cluster.train={workers: 6, least_workers: 5, gpus: 1}": None,
}


@pytest.mark.parametrize("override", GIVEN)
def test_what_is_asked_for(override, check):
    message = GIVEN[override]
    with pytest.raises(InputError, match=re.escape(message)) if message else nullcontext():
        check(override)


def test_nodes_that_a_process_fits_are_searched_for_a_gpu(tiny_spec, monkeypatch):
    """A task that is larger than its node would fail."""
    named = {"Alive": True, "NodeID": "ab" * 28, "NodeManagerAddress": "127.0.0.1"}
    nodes = [{**named, "Resources": held} for held in TWO_NODES]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    monkeypatch.setattr("ray.remote", Mock())
    looked: list[object] = []
    monkeypatch.setattr(adapter, "get", lambda looks: looked.extend(looks) or ["H100"])
    assert adapter.check_gpus(load(tiny_spec(cluster="{embed: {gpus: 2}}"))) == "H100"
    assert len(looked) == 1


def test_parts_that_make_a_whole_fit(check, monkeypatch):
    """In binary, a hundred times 0.07 is more than seven."""
    monkeypatch.setattr("ray.nodes", lambda: [{"Alive": True, "Resources": {"CPU": 200.0, "GPU": 7.0}}])
    check("cluster.embed={workers: 100, gpus: 0.07}")
    with pytest.raises(InputError, match="101 workers"):
        check("cluster.embed={workers: 101, gpus: 0.07}")


def test_a_cluster_that_answers_is_told_from_one_that_is_gone(tmp_path, monkeypatch):
    """`ray start` leaves its address behind; where nobody listens any more Ray would wait for it."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "ray").mkdir()
    assert not cluster.noted()
    for gone in ("127.0.0.1:1", ""):
        (tmp_path / "ray" / "ray_current_cluster").write_text(gone)
        assert not cluster.noted()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{listening.getsockname()[1]}")
        assert cluster.noted()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("local", r"Ray did not start on this machine \(The current node timed out\)\. Is it busy, .* `ray stop` ends"),
        ("auto", r"Ray did not start on this machine \(The current node timed out\)"),
        ("ray://127.0.0.1", r"got 'ray://127.0.0.1', but no cluster answers there: The current node timed out$"),
    ],
)
def test_ray_that_does_not_start_is_one_line(address, said, monkeypatch):
    late = Mock(side_effect=RuntimeError("The current node timed out\nduring startup.\nMore lines"))
    monkeypatch.setattr(adapter.ray, "init", late)
    monkeypatch.setattr(adapter.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(adapter, "noted", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(InputError, match=said) as caught:
        adapter.join(SimpleNamespace(cluster=SimpleNamespace(address=address)))
    assert len(str(caught.value).splitlines()) == 1


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
