"""Vacuum removes what no version that stays needs, and nothing else, whatever happens meanwhile."""

import threading
import time

import pytest

from rayhier.index import change
from rayhier.index.vacuum import vacuum
from rayhier.index.verify import verify
from rayhier.spec import InputError
from rayhier.storage import files, leaf_map, pins
from rayhier.storage.leaf_map import LeafMap

from ..meanwhile import meanwhile
from .changes import FACTOR, batch, compacted, content
from .conftest import N


@pytest.fixture
def grown(made):
    """Versions 1 to 5: built, added to, deleted from, compacted, added to."""
    change.add(made.root, made.assign, batch(["a", "b"]), FACTOR)
    change.delete(made.root, ["d001", "a"])
    compacted(made.root)
    change.add(made.root, made.assign, batch(["c"]), FACTOR)
    return made


@pytest.mark.parametrize("folder", ["local", "s3"], indirect=True)
@pytest.mark.parametrize(("keep", "swept_files"), [(1, 9), (3, 0)])
def test_the_newest_versions_stay_whole(grown, keep, swept_files):
    versions = [1, 2, 3, 4, 5]
    before = {version: content(LeafMap.open(grown.root, version)) for version in versions[-keep:]}
    swept = vacuum(grown.root, keep)
    assert (swept.versions, swept.files) == (versions[:-keep], swept_files)
    assert leaf_map.versions(grown.root) == versions[-keep:]
    after = [LeafMap.open(grown.root, version) for version in versions[-keep:]]
    assert {version.manifest.version: content(version) for version in after} == before
    held = {name for name in files.below(grown.root) if name.startswith(("data/", "words/", "removed/"))}
    assert held == {file.name for version in after for file in version.manifest.files}
    verify(grown.root)


def test_a_pinned_version_is_whole_until_it_is_let_go(grown):
    before = content(LeafMap.open(grown.root, 1))
    with pins.pinned(grown.root, 1):
        swept = vacuum(grown.root)
        assert pins.held(grown.root) == {1}
        assert (swept.versions, swept.held) == ([2, 3, 4], [1])
        assert content(LeafMap.open(grown.root, 1)) == before
    assert vacuum(grown.root).versions == [1]
    with pytest.raises(InputError, match="version 1; allowed: 5"):
        LeafMap.open(grown.root, 1)


def test_a_dead_readers_pin_is_forgotten(grown):
    with pins.pinned(grown.root, 1):
        (path,) = (grown.root / "pins").glob("v*.json")
        files.write_json(path, files.read_json(path) | {"until": leaf_map.now() - 1})
        assert vacuum(grown.root).versions == [1, 2, 3, 4]
        assert not list((grown.root / "pins").glob("v*.json"))


def test_a_pin_never_lapses(folder, monkeypatch):
    """The clock runs only while the pin's thread waits, up to ten times as long as a pin holds."""
    clock, seen, over, wait = [0.0], [], threading.Event(), threading.Event.wait
    others = set(threading.enumerate())  # pins that another test has not let go of yet

    def waited(event, timeout=None):
        if timeout is None or threading.current_thread() in others:  # without a limit: a thread for its own start
            return wait(event, timeout)
        clock[0] += timeout
        seen.append(pins.held(folder))
        if clock[0] < 10 * pins.SECONDS:
            return False
        over.set()
        return wait(event)

    monkeypatch.setattr(pins, "now", lambda: clock[0])
    monkeypatch.setattr(threading.Event, "wait", waited)
    with pins.pinned(folder, 1):
        assert wait(over, 60)
    assert len(seen) > 10
    assert seen == [{1}] * len(seen)
    assert pins.held(folder) == set()


def test_a_pin_that_cannot_be_read_counts_as_long_as_a_new_one(folder, monkeypatch):
    files.replace(folder / "pins" / "v000003-x.json", b"{")
    assert pins.held(folder) == {3}
    later = time.time() + pins.SECONDS + 1
    monkeypatch.setattr(pins, "now", lambda: later)
    assert pins.held(folder) == set()


def test_a_reader_that_may_not_write_reads(made, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "replace", refused)
    with pins.reading(made.root) as there:
        assert there.manifest.version == 1


def test_a_reader_that_was_too_late_reads_the_next_version(made, monkeypatch):
    """Between its look at the newest version and its pin that version is superseded and vacuumed."""

    def superseded():
        change.delete(made.root, ["d001"])
        vacuum(made.root)

    meanwhile(monkeypatch, pins, "pinned", superseded)
    with pins.reading(made.root) as there:
        assert there.manifest.version == 2
        assert pins.held(made.root) == {2}
        assert content(there)


def test_a_version_pinned_while_its_manifest_is_removed_stays(made, monkeypatch):
    """A reader that pins between a vacuum's look at pins and its removal of manifests, and a second vacuum later."""
    change.delete(made.root, ["d001"])
    reader = pins.reading(made.root, 1)
    held = meanwhile(monkeypatch, leaf_map, "remove_version", reader.__enter__)
    swept = vacuum(made.root, hours=0)
    (there,) = held
    assert (swept.versions, swept.held, swept.files) == ([], [1], 0)
    assert vacuum(made.root, hours=0).files == 0
    assert content(there)
    reader.__exit__(None, None, None)
    assert vacuum(made.root).versions == [1]


def test_files_that_a_writer_renames_or_another_vacuum_removes_are_no_error(made, monkeypatch):
    change.delete(made.root, ["d001"])
    real = files.below
    monkeypatch.setattr(files, "below", lambda root: [*real(root), "data/.added-0.parquet.tmp"])
    assert vacuum(made.root).versions == [1]


def test_files_of_a_writer_at_work_stay(grown):
    files.replace(grown.root / "data" / "added-0123-00000.parquet", b"not yet published")
    files.replace(grown.root / "work" / "compact-000001" / "shard.json", b"{}")
    assert vacuum(grown.root, hours=1).files == 9
    names = set(files.below(grown.root))
    assert {"data/added-0123-00000.parquet", "work/compact-000001/shard.json"} <= names
    assert vacuum(grown.root, hours=0).files == 2


def test_a_writer_that_starts_while_files_are_listed_keeps_its_own(made, monkeypatch):
    writer = pins.pinned(made.root, 1, writes=True)

    def starts():
        writer.__enter__()
        files.replace(made.root / "data" / "added-0123-00000.parquet", b"not yet published")

    meanwhile(monkeypatch, files, "below", starts)
    swept = vacuum(made.root, hours=0)
    writer.__exit__(None, None, None)
    assert swept.files == 0


def test_a_writer_that_comes_and_goes_during_a_vacuum(made, monkeypatch):
    """All of its work falls between the look for writers and the removal of files."""
    real, looks = pins.held, []

    def held(root):
        looks.append(1)
        if len(looks) == 3:
            change.add(made.root, made.assign, batch(["a"]), FACTOR)
        return real(root)

    monkeypatch.setattr(pins, "held", held)
    vacuum(made.root, hours=0)
    assert len(looks) == 3
    monkeypatch.undo()
    assert verify(made.root) == [1, 2]


def test_a_number_is_not_free_again_while_a_writer_makes_a_version(made, monkeypatch):
    """A change sleeps after it has read the newest version. Others publish two versions, and remove the first."""

    def others():
        change.delete(made.root, ["d003"])
        change.delete(made.root, ["d004"])
        vacuum(made.root, keep=1)

    meanwhile(monkeypatch, leaf_map, "publish", others)
    change.delete(made.root, ["d002"])
    assert LeafMap.open(made.root).manifest.documents == N - 3


@pytest.mark.parametrize(("module", "step"), [(leaf_map, "remove_version"), (files, "below")])
def test_a_rollback_that_lands_while_a_vacuum_looks_around(grown, monkeypatch, module, step):
    """It reads version 1 and pins it at a step of the vacuum, and publishes between the two looks that come next."""
    pin, old = pins.pinned(grown.root, 1), LeafMap.open(grown.root, 1).manifest
    looks = []

    def pinning():
        pin.__enter__()
        for place, name in ((leaf_map, "versions"), (pins, "held")):
            monkeypatch.setattr(place, name, looking(getattr(place, name)))

    def looking(look):
        def looked(root):
            found = look(root)
            if not looks:
                looks.append(look)
                leaf_map.commit(root, lambda _: old.model_copy(update={"change": "rollback"}))
                pin.__exit__(None, None, None)
            return found

        return looked

    meanwhile(monkeypatch, module, step, pinning)
    vacuum(grown.root)
    assert looks
    assert verify(grown.root)
