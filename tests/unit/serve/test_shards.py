"""A group of shards: its ping is a search, and what fails twice, or was changed below it, is loaded anew."""

import asyncio
from unittest.mock import Mock

import numpy as np
import pytest

from rayhier.index.change import delete
from rayhier.search.index import open_leaf_map
from rayhier.search.retrieve import Scan
from rayhier.search.snapshot import Seen
from rayhier.serve.application import check_index
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.shards import ShardGroup
from rayhier.spec import InputError
from rayhier.storage import pins

from ..storage.in_place import overwrite

SCAN = Scan(np.eye(2, 32, dtype=np.float32), np.array([[0, 1, 2], [3, 4, 8]]), 5)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def group(home, published):
    version, manifest, (part,) = check_index(ServeArgs(workdir=str(published), shard_groups=1))
    group = ShardGroup(version, part.leaves)
    group.seen = Seen(manifest.model, 1, 0)
    return group


def ids(group):
    """What a search finds."""
    found = asyncio.run(group.read(SCAN, group.seen))
    return [[found.documents["id"][row].as_py() for row in rows] for rows in found.row_QK.tolist()]


def test_what_fails_twice_in_a_row_loads_anew(group):
    whole, broken = ids(group), group._newest
    broken.read = Mock(side_effect=RuntimeError("a damaged file"))
    for _ in range(2):
        assert group._newest is broken
        with pytest.raises(RuntimeError, match="a damaged file"):
            ids(group)
    assert ids(group) == whole


def test_a_mapped_file_that_is_overwritten(group, home):
    whole = ids(group)
    path = min((home / "lists").glob("*/codes.npy"))
    good = path.read_bytes()
    overwrite(path, b"\xff" * 64)
    for _ in range(2):
        with pytest.raises(OSError, match="files in the cache of this machine were changed while they were open"):
            asyncio.run(group.ping())
    asyncio.run(group.ping())
    assert ids(group) == whole
    assert path.read_bytes() == good


@pytest.fixture
def copied(home, work):
    """A copy of a published index that a test may change: its version, manifest, leaves and root."""
    version, manifest, (part,) = check_index(ServeArgs(workdir=str(work), shard_groups=1))
    return version, manifest, part.leaves, open_leaf_map(work, version.now).root


async def test_versions_are_opened_ahead_and_closed_once_none_names_them(copied):
    """A replica that the Writer does not reach opens the newest version by itself, and keeps the older one a while."""
    version, manifest, leaves, root = copied

    def pinned():
        return list((root / pins.PINS).glob("v000001-*"))

    before = len(pinned())  # by other tests' groups, whose pins were copied
    group = ShardGroup(version, leaves, 60.0, follows=True)
    assert len(pinned()) == before + 1
    await group.read(SCAN, Seen(manifest.model, 1, 0))
    delete(root, ["d1"])
    await group.check_health()
    await group._newer
    assert set(group._versions) == {1, 2}
    await group.read(SCAN, Seen(manifest.model, 2, 0))
    await group.check_health()
    assert set(group._versions) == {1, 2}
    group._seconds = 0.0
    await group.check_health()
    assert set(group._versions) == {2}
    group._opening.submit(lambda: None).result()
    assert len(pinned()) == before
    await group.read(SCAN, Seen(manifest.model, 1, 0))  # an ingress that knows no newer one
    assert set(group._versions) == {1, 2}
    assert set(ShardGroup(version, leaves, follows=True)._versions) == {2}
    with pytest.raises(InputError, match="holds no version 7"):
        await group.read(SCAN, Seen(manifest.model, 7, 0))
    with pytest.raises(InputError, match="got model fedcba987654; allowed: "):
        await group.read(SCAN, Seen("fedcba987654", 2, 0))  # of an application that another replaces


async def test_an_older_version_is_closed_while_newer_ones_follow_without_a_pause(copied, monkeypatch):
    """Its seconds count from the next version, not from the newest: else a stream of versions keeps all of them."""
    version, manifest, leaves, root = copied
    now = [1000.0]
    monkeypatch.setattr("rayhier.serve.backend.shards.time.monotonic", lambda: now[0])
    group = ShardGroup(version, leaves, 3.0)
    for number in range(1, 9):
        if number > 1:
            delete(root, [f"d{number}"])
        await group.read(SCAN, Seen(manifest.model, number, 0))
        assert min(group._versions) >= number - 4
        now[0] += 1.0
    assert set(group._versions) == {4, 5, 6, 7, 8}
