"""Unpublished work is adopted from the dead, never from the living, by one run; racing runs publish one result."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import HEARTBEAT_SECONDS, SILENT_SECONDS, Attempt, Output

from ..meanwhile import meanwhile

OWN = """
import sys
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt
from rayhier.storage.paths import locate
with Attempt.start(Place(locate(sys.argv[1]))) as attempt:
    (attempt.scratch / "half").write_bytes(b"done")
    print(attempt.root.name, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(folder):
    return Place(folder / "index" / "0123456789ab")


@pytest.fixture
def owner(place):
    """A living process that owns an attempt; its first line of output is the attempt's name."""
    command = [sys.executable, "-c", OWN, str(place.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def later(seconds):
    return lambda: time.time() + seconds


def write(attempt, name, content):
    (attempt.root / name).write_bytes(content.encode())


def attempts(place):
    return sorted(path.name for path in place.folder.glob("attempt-*"))


@pytest.mark.parametrize("zombie", [False, True])
def test_the_attempt_of_a_killed_owner_is_adopted_with_its_work(place, owner, zombie):
    name = owner.stdout.readline().strip()
    owner.kill()
    os.waitid(os.P_PID, owner.pid, os.WEXITED | (os.WNOWAIT if zombie else 0))
    with Attempt.start(place) as attempt:
        assert attempt.root.name == name
        assert (attempt.scratch / "half").read_text() == "done"


@pytest.mark.parametrize(("silence", "adopted"), [(SILENT_SECONDS - 10, False), (SILENT_SECONDS + 10, True)])
def test_a_living_owner_keeps_its_attempt_unless_it_is_silent(place, owner, silence, adopted):
    name = owner.stdout.readline().strip()
    with Attempt.start(place, clock=later(silence)) as attempt:
        assert (attempt.root.name == name) is adopted


@pytest.mark.parametrize(("host", "adopted"), [({}, True), ({"host": "another"}, False)])
def test_a_pid_that_another_process_has_now_is_dead_on_its_own_host_alone(place, host, adopted):
    with Attempt.start(place) as attempt:
        alive = files.read_json(attempt.root / "owner.json")
    files.write_json(attempt.root / "owner.json", {**alive, "started": "before this process", **host})
    with Attempt.start(place) as next_one:
        assert (next_one.root == attempt.root) is adopted


def test_a_heartbeat_goes_on_until_the_attempt_is_claimed(place, monkeypatch):
    assert HEARTBEAT_SECONDS < SILENT_SECONDS / 2
    monkeypatch.setattr("rayhier.storage.attempt.HEARTBEAT_SECONDS", 0.001)
    attempt, beats = Attempt.start(place), threading.Semaphore(0)
    beat = attempt._beat

    def heard():
        """Once all that had begun is done."""
        while beats.acquire(blocking=False):
            pass
        for _ in range(2):
            assert beats.acquire(timeout=20)
        return files.read_json(attempt.root / "owner.json")["heartbeat"]

    attempt._beat = lambda: (beat(), beats.release())
    with attempt:
        assert heard() < heard()
        files.create(attempt.root / "claims" / "1", b"of another run")
        assert heard() == heard()


def test_who_was_taken_over_cannot_publish(place):
    with Attempt.start(place) as old:
        write(old, "a", "old")
        with Attempt.start(place, clock=later(SILENT_SECONDS + 10)) as new:
            assert new.root == old.root
            (new.scratch / "half").write_bytes(b"done")
            with pytest.raises(InputError, match="another run took this attempt over"):
                old.publish("index", {}, Output({}))
            assert (new.scratch / "half").read_bytes() == b"done"
            artifact = new.publish("index", {}, Output({}))
    assert artifact.names("") == ["a"]
    artifact.verify()


def test_who_is_taken_over_while_its_files_are_hashed_publishes_nothing(place, monkeypatch):
    with Attempt.start(place) as attempt:
        write(attempt, "a", "x")
        claim = partial(files.create, attempt.root / "claims" / "1", b"of another run")
        meanwhile(monkeypatch, files, "describe", claim)
        with pytest.raises(InputError, match="another run took this attempt over"):
            attempt.publish("index", {}, Output({}))
    assert place.published() is None


def test_an_attempt_that_another_run_claims_at_the_same_moment_is_its_own(place, monkeypatch):
    with Attempt.start(place) as dead:
        pass
    meanwhile(monkeypatch, files, "create", partial(files.create, dead.root / "claims" / "1", b"of another run"))
    with Attempt.start(place) as attempt:
        assert attempt.root != dead.root


def test_publishing_lists_every_file_but_scratch(place):
    with Attempt.start(place) as attempt:
        write(attempt, "a", "x")
        write(attempt, ".b.1234.tmp", "left by a killed write")
        (attempt.scratch / "part").write_bytes(b"x")
        artifact = attempt.publish("index", {"model": "m"}, Output({"documents": 1}))
    assert artifact.names("") == ["a"]
    assert not attempt.scratch.exists()
    assert artifact.record.fingerprint == place.folder.name
    assert artifact.record.inputs == {"model": "m"}
    artifact.verify()


@pytest.mark.parametrize("left", [False, True])
def test_the_second_of_two_racing_publishes_returns_the_winners(place, left):
    with contextlib.ExitStack() as stack, Attempt.start(place) as second:
        first = stack.enter_context(Attempt.start(place))
        write(first, "a", "first")
        won = first.publish("index", {}, Output({}))
        if left:
            stack.close()
        write(second, "a", "second")
        assert second.publish("index", {}, Output({})) == won
    assert attempts(place) == [first.root.name]
    assert won.path("a").read_text() == "first"
    won.verify()


@pytest.mark.parametrize("lives", [False, True])
def test_publishing_sweeps_attempts_of_the_dead(place, owner, lives):
    name = owner.stdout.readline().strip()
    with Attempt.start(place) as attempt:
        if not lives:
            owner.kill()
            owner.wait()
        attempt.publish("index", {}, Output({}))
    assert (name in attempts(place)) is lives


@pytest.mark.parametrize("left", ["no owner.json", "the owner of an earlier claim"])
def test_an_adopter_that_died_before_it_said_who_it_is_is_followed(place, left):
    with Attempt.start(place) as attempt:
        pass
    (attempt.root / "claims" / "1").write_bytes(b"")
    if left == "no owner.json":
        (attempt.root / "owner.json").unlink()
    early = Attempt.start(place, clock=later(SILENT_SECONDS - 10))
    assert early.root != attempt.root
    files.remove(early.root)
    with Attempt.start(place, clock=later(SILENT_SECONDS + 10)) as late:
        assert late.root == attempt.root
