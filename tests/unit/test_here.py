"""The executor of this process: threads as cores allow, rows as they are made, and the first error."""

import errno
import threading

import pytest

from rayhier.executor import Pool, here
from rayhier.executor.here import Here
from rayhier.spec import InputError, load
from rayhier.spec.cluster import Workers


class Doubles:
    made = 0

    def __init__(self, fails_at=None, error=None):
        self.fails_at, self.error = fails_at, error
        Doubles.made += 1

    def __call__(self, item):
        yield {"begun": item["n"]}
        if item["n"] == self.fails_at:
            raise self.error
        yield {"n": 2 * item["n"], "thread": threading.current_thread().name}


@pytest.mark.parametrize(("cores", "workers", "cpus", "actors"), [(4, 3, 1, 3), (4, 9, 2, 2), (2, 1, 8, 1)])
def test_no_more_actors_than_cores_and_workers(cores, workers, cpus, actors, monkeypatch):
    monkeypatch.setattr(here, "cores", lambda: cores)
    monkeypatch.setattr(Doubles, "made", 0)
    rows = list(Here().stream([{"n": n} for n in range(9)], Pool(Doubles, {}, Workers(workers=workers, cpus=cpus))))
    assert Doubles.made == actors
    assert sorted(row["n"] for row in rows if "n" in row) == list(range(0, 18, 2))
    assert len({row["thread"] for row in rows if "n" in row}) <= actors


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(errno.ENOSPC, "No space left on device", "/full"), InputError), (KeyError("a defect"), KeyError)],
)
def test_the_first_error_ends_the_work(error, raised, monkeypatch):
    monkeypatch.setattr(here, "cores", lambda: 1)
    rows = Here().stream([{"n": n} for n in range(99)], Pool(Doubles, {"fails_at": 1, "error": error}, Workers()))
    assert [next(rows) for _ in range(3)][::2] == [{"begun": 0}, {"begun": 1}]
    with pytest.raises(raised):
        next(rows)


def test_a_stopped_stage_ends_at_the_next_row_of_each_thread():
    begun, let_go = threading.Event(), threading.Event()

    class Endless:
        def __call__(self, _):
            while True:
                begun.set()
                yield {}
                let_go.wait()

    rows = Here().stream([{}], Pool(Endless, {}, Workers()))
    next(rows)
    begun.wait()
    let_go.set()
    rows.close()  # as Ctrl-C does
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("stage")]


def test_no_worker_has_more_cpus_than_there_are_cores(tiny_spec, monkeypatch):
    monkeypatch.setattr(here, "cores", lambda: 2)
    spec = load(tiny_spec(), ["cluster.train.cpus=64", "cluster.index={workers: 1, cpus: 9}"])
    cluster = here.within_cores(spec).cluster
    assert [cluster.train.cpus, cluster.index.cpus, cluster.embed.cpus] == [2, 2, 1]
    assert [cluster.train.workers, cluster.index.workers, cluster.embed.workers] == [1, 1, 1]
