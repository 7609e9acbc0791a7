"""What libraries read from paths is fetched once, whole, and never trusted unread; what is made stays in its limit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rayhier.spec import InputError
from rayhier.storage import cache
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt, Output

from .in_place import overwrite


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(folder):
    with Attempt.start(Place(folder / "model" / "0123456789ab")) as attempt:
        (attempt.root / "encoder" / "1_Pooling").mkdir(parents=True)
        (attempt.root / "encoder" / "weights").write_bytes(b"w")
        (attempt.root / "encoder" / "1_Pooling" / "config.json").write_bytes(b"{}")
        (attempt.root / "encoders").write_bytes(b"beside")
        return attempt.publish("model", {}, Output({}))


def test_what_was_fetched_is_read_without_the_bucket_and_fetched_again_if_damaged(model, home):
    found = model.local("encoder")
    assert isinstance(found, Path)
    assert (found / "weights").read_bytes() == b"w"
    assert (found / "1_Pooling" / "config.json").read_bytes() == b"{}"
    if isinstance(model.folder, Path):
        return
    (found / "weights").write_bytes(b"x")
    assert (model.local("encoder") / "weights").read_bytes() == b"w"
    model.path("encoder/weights").unlink()
    assert model.local("encoder") == found
    assert list((home / "fetched").iterdir()) == [found.parent]


@pytest.mark.parametrize("anywhere", ["s3"], indirect=True)
def test_a_damaged_original_is_refused_and_not_kept(model, home):
    model.path("encoder/weights").write_bytes(b"x")
    with pytest.raises(InputError, match="not the file that was published"):
        model.local("encoder")
    assert list((home / "fetched").iterdir()) == []


BYTES = 1_000
"""Bytes of a cached folder's one file; beside it lies the list of files."""
ROOM = BYTES + 250


def write(name):
    """What fills the folder of a name."""
    return lambda folder: (folder / "data").write_bytes(name[:1].encode() * BYTES)


def make(name, limit=ROOM * 100):
    """Open a folder of a name; its lease."""
    return cache.get_or_build("kind", name, write(name), limit)


def names(home):
    """What is kept, by the first letter in it."""
    return {(folder / "data").read_text()[0] for folder in (home / "kind").iterdir()}


def used(lease, when):
    """Let go of a folder that was used at a time."""
    lease.release()
    os.utime(lease.folder / cache.LOCK, (when, when))


def test_a_file_that_was_overwritten_is_made_again_though_it_is_held():
    lease = make("a")
    assert lease.intact()
    overwrite(lease.folder / "data", b"x")
    assert not lease.intact()
    again = make("a")
    assert (again.folder / "data").read_bytes() == b"a" * BYTES
    assert again.intact()
    assert not lease.intact()


@pytest.mark.parametrize("listed", [b"", b"{", b"[]", b'{"data": 1000}', b'{"data": [[1000], 3]}'])
def test_a_list_of_files_that_says_nothing(listed):
    folder = make("a").folder
    (folder / cache.FILES).write_bytes(listed)
    (folder / "data").write_bytes(b"x" * BYTES)
    assert (make("a").folder / "data").read_bytes() == b"a" * BYTES


def test_what_was_touched_is_read_once(monkeypatch):
    lease = make("a")
    os.utime(lease.folder / "data", (1, 1))
    assert not lease.intact()
    digest, read = cache.files.digest, []
    monkeypatch.setattr(cache.files, "digest", lambda path: read.append(path.name) or digest(path))
    assert [cache.get_or_build("kind", "a", pytest.fail).intact() for _ in range(3)] == [True] * 3
    assert read == ["data"]


@pytest.mark.parametrize("order", ["abcd", "dcba", "cadb"])
def test_the_least_recently_used_go_until_the_limit_is_kept(home, order):
    for when, name in enumerate(order):
        used(make(name), when)
    make("e", 5 * ROOM)
    assert names(home) == set("abcde")
    used(make(order[0]), 10)  # as it was there nothing is removed, and now it is not the oldest
    make("f", 3 * ROOM)
    assert names(home) == {order[0], "e", "f"}


def test_what_has_a_lease_stays_whatever_the_limit(home):
    held = make("a", 1)
    make("b", 1).release()
    make("c", 1)
    assert names(home) == set("ac")
    assert (held.folder / "data").read_bytes() == b"a" * BYTES
    held.release()
    make("d", 1)
    assert names(home) == set("d"), "c was forgotten"


def test_a_folder_that_cannot_be_filled_leaves_nothing(home):
    def fail(folder):
        (folder / "data").write_bytes(b"x")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left"):
        cache.get_or_build("kind", "a", fail)
    assert not list((home / "kind").iterdir())


RACE = """
import random, sys
from rayhier.storage import cache
draw, made = random.Random(int(sys.argv[1])), []
def write(folder):
    made.append([(folder / number).write_text(name * 1000) for number in "012"])
for _ in range(60):
    name = draw.choice("abcd")
    lease = cache.get_or_build("kind", name, write, 4000)
    assert all((lease.folder / number).read_text() == name * 1000 for number in "012")
    lease.release()
print(len(made))
"""


def test_who_opens_while_another_sweeps_gets_a_whole_folder(home):
    """There is room for one or two of four: each process keeps removing what the others look for."""
    command = [sys.executable, "-c", RACE]
    every = [subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True) for seed in range(3)]
    made = [int(one.communicate()[0]) for one in every]
    assert [one.returncode for one in every] == [0, 0, 0]
    assert sum(made) > 20, "many were removed and made again"
    assert not list((home / "kind").glob("*.tmp"))
