"""Vacuum removes what no version that stays needs, and nothing else."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rayhier.index import change
from rayhier.index.vacuum import vacuum
from rayhier.index.verify import verify
from rayhier.spec import InputError
from rayhier.storage import files, leaf_map, pins
from rayhier.storage.leaf_map import LeafMap

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


def there(root):
    return {name for name in files.below(root) if name.startswith(("data/", "removed/"))}


def test_only_the_newest_stays(grown):
    before = content(LeafMap.open(grown.root))
    swept = vacuum(grown.root)
    assert (swept.versions, swept.files) == ([1, 2, 3, 4], 5)
    assert leaf_map.versions(grown.root) == [5]
    after = LeafMap.open(grown.root)
    assert content(after) == before
    assert there(grown.root) == {file.name for file in after.manifest.files}
    verify(grown.root)


def test_kept_versions_are_whole(grown):
    before = {version: content(LeafMap.open(grown.root, version)) for version in (3, 4, 5)}
    assert vacuum(grown.root, keep=3).versions == [1, 2]
    assert {version: content(LeafMap.open(grown.root, version)) for version in (3, 4, 5)} == before


def test_a_pinned_version_is_whole_until_it_is_let_go(grown):
    before = content(LeafMap.open(grown.root, 1))
    with pins.pinned(grown.root, 1):
        swept = vacuum(grown.root)
        assert (swept.versions, swept.held) == ([2, 3, 4], [1])
        assert content(LeafMap.open(grown.root, 1)) == before
    assert vacuum(grown.root).versions == [1]
    with pytest.raises(InputError, match="holds no version 1; allowed: 5"):
        LeafMap.open(grown.root, 1)


def test_a_dead_readers_pin_is_forgotten(grown):
    with pins.pinned(grown.root, 1, seconds=300):
        (path,) = (grown.root / "pins").glob("v*.json")
        saved = files.read_json(path)
        files.write_json(path, saved | {"until": leaf_map.now() - 1})
        assert vacuum(grown.root).versions == [1, 2, 3, 4]
        assert not list((grown.root / "pins").glob("v*.json"))


def test_a_pin_never_lapses(folder, monkeypatch):
    """By a clock that runs only while the pin's thread waits, up to ten times as long as a pin holds."""
    clock, seen, over, wait = [0.0], [], threading.Event(), threading.Event.wait

    def waited(event, timeout=None):
        if timeout is None:  # a thread for its own start
            return wait(event)
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


def test_a_pin_that_cannot_be_read_counts(folder):
    files.replace(folder / "pins" / "v000003-x.json", b"{")
    assert pins.held(folder) == {3}


def test_files_of_a_writer_at_work_stay(grown):
    files.replace(grown.root / "data" / "added-0123-00000.parquet", b"not yet published")
    files.replace(grown.root / "work" / "compact-000001" / "shard.json", b"{}")
    assert vacuum(grown.root, hours=1).files == 5
    names = set(files.below(grown.root))
    assert {"data/added-0123-00000.parquet", "work/compact-000001/shard.json"} <= names
    assert vacuum(grown.root, hours=0).files == 2


def test_old_leftovers_go(made, monkeypatch):
    files.replace(made.root / "data" / "added-0123-00000.parquet", b"of a writer that died")
    assert vacuum(made.root).files == 0
    monkeypatch.setattr(leaf_map, "now", lambda: time.time() + 90_000)
    assert vacuum(made.root).files == 1
    assert LeafMap.open(made.root).manifest.documents == N


def test_a_rollback_that_lands_while_a_vacuum_looks_around(grown, monkeypatch):
    """It pins version 1 once that is doomed, reads it, and publishes between two looks at what is needed."""
    pin, old = pins.pinned(grown.root, 1), LeafMap.open(grown.root, 1).manifest
    removed, looks = leaf_map.remove_version, []

    def remove_version(root, version):
        if version == 1:
            pin.__enter__()
            for module, name in ((leaf_map, "versions"), (pins, "held")):
                monkeypatch.setattr(module, name, looking(getattr(module, name)))
        removed(root, version)

    def looking(look):
        def looked(root):
            found = look(root)
            if not looks:
                looks.append(look)
                leaf_map.commit(root, lambda _: old.model_copy(update={"change": "rollback"}))
                pin.__exit__(None, None, None)
            return found

        return looked

    monkeypatch.setattr(leaf_map, "remove_version", remove_version)
    vacuum(grown.root)
    assert looks
    assert verify(grown.root)


def test_a_rollback_and_a_vacuum_at_once(grown):
    """Whatever comes first, the newest version is whole: the rollback lands, or it says that the version is gone."""
    with ThreadPoolExecutor(2) as pool:
        rolled, swept = pool.submit(change.rollback, grown.root, 1), pool.submit(vacuum, grown.root)
        swept.result()
        error = rolled.exception()
    assert error is None or (isinstance(error, InputError) and re.search(r"no version 1|was removed", str(error)))
    verify(grown.root)
