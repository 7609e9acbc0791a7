"""Vacuum removes what no version that stays needs, and nothing else."""

import threading
import time

import pytest

from rayhier.index import change
from rayhier.index.vacuum import vacuum
from rayhier.index.verify import verify
from rayhier.spec import InputError
from rayhier.storage import files, leaf_map, pins
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, batch, compacted, content


@pytest.fixture
def folder(anywhere):
    return anywhere


@pytest.fixture
def grown(made):
    """Versions 1 to 5: built, added to, deleted from, compacted, added to."""
    change.add(made.root, made.assign, batch(["a", "b"]), FACTOR)
    change.delete(made.root, ["d001", "a"])
    compacted(made.root)
    change.add(made.root, made.assign, batch(["c"]), FACTOR)
    return made


def there(root):
    return {name for name in files.below(root) if name.startswith(("data/", "words/", "removed/"))}


@pytest.mark.parametrize(("keep", "swept_files"), [(1, 9), (3, 0)])
def test_the_newest_versions_stay_whole(grown, keep, swept_files):
    versions = [1, 2, 3, 4, 5]
    before = {version: content(LeafMap.open(grown.root, version)) for version in versions[-keep:]}
    swept = vacuum(grown.root, keep)
    assert (swept.versions, swept.files) == (versions[:-keep], swept_files)
    assert leaf_map.versions(grown.root) == versions[-keep:]
    after = [LeafMap.open(grown.root, version) for version in versions[-keep:]]
    assert {version.manifest.version: content(version) for version in after} == before
    assert there(grown.root) == {file.name for version in after for file in version.manifest.files}
    verify(grown.root)


def test_a_pinned_version_is_whole_until_it_is_let_go(grown, monkeypatch):
    before = content(LeafMap.open(grown.root, 1))
    with pins.pinned(grown.root, 1):
        removed, remove = [], leaf_map.remove_version
        with monkeypatch.context() as patch:
            patch.setattr(leaf_map, "remove_version", lambda *given: removed.append(given[1]) or remove(*given))
            swept = vacuum(grown.root)
        assert removed == [2, 3, 4]
        assert pins.held(grown.root) == {1}
        assert (swept.versions, swept.held) == ([2, 3, 4], [1])
        assert content(LeafMap.open(grown.root, 1)) == before
    assert vacuum(grown.root).versions == [1]
    with pytest.raises(InputError, match="holds no version 1; allowed: 5"):
        LeafMap.open(grown.root, 1)


def test_a_dead_readers_pin_is_forgotten(grown):
    with pins.pinned(grown.root, 1):
        (path,) = (grown.root / "pins").glob("v*.json")
        saved = files.read_json(path)
        files.write_json(path, saved | {"until": leaf_map.now() - 1})
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


def test_files_of_a_writer_at_work_stay(grown):
    files.replace(grown.root / "data" / "added-0123-00000.parquet", b"not yet published")
    files.replace(grown.root / "work" / "compact-000001" / "shard.json", b"{}")
    assert vacuum(grown.root, hours=1).files == 9
    names = set(files.below(grown.root))
    assert {"data/added-0123-00000.parquet", "work/compact-000001/shard.json"} <= names
    assert vacuum(grown.root, hours=0).files == 2


def test_a_writer_that_starts_while_files_are_listed_keeps_its_own(made, monkeypatch):
    writer, real = pins.pinned(made.root, 1, writes=True), files.below

    def below(root):
        writer.__enter__()
        files.replace(root / "data" / "added-0123-00000.parquet", b"not yet published")
        return real(root)

    monkeypatch.setattr(files, "below", below)
    swept = vacuum(made.root, hours=0)
    writer.__exit__(None, None, None)
    assert swept.files == 0


@pytest.mark.parametrize(("module", "step"), [(leaf_map, "remove_version"), (files, "below")])
def test_a_rollback_that_lands_while_a_vacuum_looks_around(grown, monkeypatch, module, step):
    """It reads version 1 and pins it at a step of the vacuum, and publishes between the two looks that come next."""
    pin, old = pins.pinned(grown.root, 1), LeafMap.open(grown.root, 1).manifest
    real, looks = getattr(module, step), []

    def pinning(*given):
        monkeypatch.setattr(module, step, real)
        pin.__enter__()
        for place, name in ((leaf_map, "versions"), (pins, "held")):
            monkeypatch.setattr(place, name, looking(getattr(place, name)))
        return real(*given)

    def looking(look):
        def looked(root):
            found = look(root)
            if not looks:
                looks.append(look)
                leaf_map.commit(root, lambda _: old.model_copy(update={"change": "rollback"}))
                pin.__exit__(None, None, None)
            return found

        return looked

    monkeypatch.setattr(module, step, pinning)
    vacuum(grown.root)
    assert looks
    assert verify(grown.root)


@pytest.mark.parametrize(("module", "step"), [(pins, "held"), (leaf_map, "remove_version"), (files, "below")])
def test_a_rollback_at_a_step_of_a_vacuum(grown, monkeypatch, module, step):
    """Before its manifest goes it lands, and nothing that it needs is removed; after that its version is gone."""
    before, real, said = content(LeafMap.open(grown.root, 1)), getattr(module, step), []

    def rolled(*given):
        monkeypatch.setattr(module, step, real)
        try:
            said.append(change.rollback(grown.root, 1).manifest.version)
        except InputError as error:
            said.append(str(error))
        return real(*given)

    monkeypatch.setattr(module, step, rolled)
    vacuum(grown.root)
    if module is files:
        assert "holds no version 1; allowed: 5" in said[0]
    else:
        assert said == [6]
        assert content(LeafMap.open(grown.root)) == before
    verify(grown.root)


def test_a_vacuum_right_before_a_rollback_publishes(grown, monkeypatch):
    before, publish = content(LeafMap.open(grown.root, 1)), leaf_map.publish

    def late(*given):
        monkeypatch.setattr(leaf_map, "publish", publish)
        assert vacuum(grown.root).held == [1]
        return publish(*given)

    monkeypatch.setattr(leaf_map, "publish", late)
    assert content(change.rollback(grown.root, 1)) == before
    verify(grown.root)


def test_a_number_is_not_free_again_while_a_writer_makes_a_version(made, monkeypatch):
    """A change sleeps after it has read the newest version. Others publish two versions, and remove the first."""
    publish, sleeps = leaf_map.publish, []

    def late(root, manifest):
        if not sleeps:
            sleeps.append(True)
            change.delete(root, ["d003"])
            change.delete(root, ["d004"])
            vacuum(root, keep=1)
        return publish(root, manifest)

    monkeypatch.setattr(leaf_map, "publish", late)
    before = LeafMap.open(made.root).manifest.documents
    change.delete(made.root, ["d002"])
    assert LeafMap.open(made.root).manifest.documents == before - 3
    vacuum(made.root, keep=1)
    assert len(leaf_map.versions(made.root)) == 1
