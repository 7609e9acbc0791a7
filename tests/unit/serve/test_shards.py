"""A group of shards: its ping is a search, and what fails twice, or was changed below it, is loaded anew."""

import asyncio
import shutil
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rayhier.index.change import delete
from rayhier.search.index import open_leaf_map
from rayhier.search.level_similarity import LevelSimilarity
from rayhier.search.live import Seen
from rayhier.search.reader import Reader
from rayhier.search.retrieve import Scan
from rayhier.serve.application import check_index
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.shards import ShardGroup
from rayhier.spec import InputError
from rayhier.spec.filter import parse
from rayhier.storage import pins

from ..storage.in_place import overwrite

QUERY = np.eye(2, 32, dtype=np.float32)
LEAVES = np.array([[0, 1, 2], [3, 4, 8]])


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def group(home, published):
    version, _, (leaves,) = check_index(ServeArgs(workdir=str(published), shard_groups=1))
    return ShardGroup(version, leaves)


def use(group, reader):
    """Let a group's newest version read by another reader."""
    group._newest.live = replace(group._newest.live, reader=reader)


def ids(group):
    """What a search finds."""
    found = asyncio.run(group.read(Scan(QUERY, LEAVES, 5)))
    return [[found.documents["id"][row].as_py() for row in rows] for rows in found.row_QK.tolist()]


class Failing:
    """A reader whose work fails so many times."""

    flat = codes = None

    def __init__(self, reader, times):
        self.reader, self.times = reader, times

    def read(self, work):
        self.times -= 1
        if self.times >= 0:
            raise RuntimeError("a damaged file")
        return self.reader.read(work)

    def intact(self):
        return True


def test_a_ping_searches_every_file(group, monkeypatch):
    plain, asked = Reader.read, []
    monkeypatch.setattr(Reader, "read", lambda reader, work: asked.append(work) or plain(reader, work))
    asyncio.run(group.ping())
    (scan,) = asked
    query_QM, leaves_QB, k = scan.query_QM, scan.leaves_QB, scan.k
    assert (query_QM.shape, k) == ((1, 32), 1)
    np.testing.assert_allclose(np.linalg.norm(query_QM), 1, rtol=1e-6)
    shards = group._newest.there.manifest.shards
    assert len(shards) > 1
    assert [any(leaf in shard.leaves for leaf in leaves_QB[0]) for shard in shards] == [True] * len(shards)


def test_a_ping_fails_where_a_search_fails(group):
    use(group, Failing(group._newest.reader, 1))
    with pytest.raises(RuntimeError, match="a damaged file"):
        asyncio.run(group.ping())
    asyncio.run(group.ping())


def test_what_fails_twice_in_a_row_loads_anew(group):
    whole, broken = ids(group), Failing(group._newest.reader, 99)
    use(group, broken)
    for _ in range(2):
        assert group._newest.reader is broken
        with pytest.raises(RuntimeError, match="a damaged file"):
            ids(group)
    assert ids(group) == whole
    assert group._newest.reader is not broken


def test_a_success_between_starts_the_count_again(group):
    broken = Failing(group._newest.reader, 2)  # at once, and again in the thread
    use(group, broken)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="a damaged file"):
            ids(group)
        ids(group)
        broken.times = 2
    assert group._newest.reader is broken


@pytest.mark.parametrize(("again", "width"), [("none", None), ("vectors", 32), ("level", 8)])
def test_a_ping_searches_the_level_where_the_spec_does(group, again, width):
    asked = []
    flat = SimpleNamespace(similarity=LevelSimilarity(2, "cosine", again))
    use(group, SimpleNamespace(flat=flat, intact=lambda: True, read=asked.append))
    group._newest.depth = 3
    asyncio.run(group.ping())
    (level,) = asked
    query, results = level.query, level.results
    assert (query.query_QK.tolist(), results) == ([[0.25] * 4], 1)
    assert (query.again_QX is None) if width is None else query.again_QX.shape == (1, width)


def mapped(home):
    """The lists that a group has open."""
    return sorted((home / "lists").glob("*/lists.faiss"))


def test_a_mapped_file_that_is_overwritten(group, home):
    whole = ids(group)
    path = mapped(home)[0]
    good = path.read_bytes()
    overwrite(path, b"\xff" * 64)
    for _ in range(2):
        with pytest.raises(OSError, match="files in the cache of this machine were changed while they were open"):
            asyncio.run(group.ping())
    asyncio.run(group.ping())
    assert ids(group) == whole
    assert path.read_bytes() == good


def test_serve_asks_after_the_files_too(group, home):
    whole, before = ids(group), group._newest.reader
    asyncio.run(group.check_health())
    assert group._newest.reader is before
    overwrite(mapped(home)[-1], b"\xff" * 64)
    asyncio.run(group.check_health())
    assert group._newest.reader is not before
    assert ids(group) == whole


def test_a_file_that_was_overwritten_while_nobody_served_it(group, home, published):
    whole = ids(group)
    version, leaves = group._newest.version, group._range
    group._newest.pins.close()
    del group
    overwrite(mapped(home)[0], b"\xff" * 64)
    assert ids(ShardGroup(version, leaves)) == whole


def test_small_scans_are_made_at_once_and_others_in_the_thread(group, monkeypatch):
    plain, threads = Reader.read, []

    def read(reader, work):
        threads.append(threading.current_thread().name.partition("_")[0])
        return plain(reader, work)

    monkeypatch.setattr(Reader, "read", read)
    most = int(group._newest.rows_L[LEAVES].sum()) * QUERY.shape[1]
    found = []
    for small, where in ((most, None), (most - 1, None), (most, parse({"year": {"gte": 0}}, {"year": "int"}))):
        monkeypatch.setattr("rayhier.serve.backend.shards.SMALL", small)
        found.append(asyncio.run(group.read(Scan(QUERY, LEAVES, 5, where))))
    assert threads == ["MainThread", "scan", "scan"]
    np.testing.assert_array_equal(found[0].score_QK, found[1].score_QK)


def test_a_success_in_the_thread_starts_the_count_again(group, monkeypatch):
    monkeypatch.setattr("rayhier.serve.backend.shards.SMALL", 0)
    broken = Failing(group._newest.reader, 1)
    use(group, broken)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="a damaged file"):
            ids(group)
        ids(group)
        broken.times = 1
    assert group._newest.reader is broken


def test_only_a_group_s_own_rows_make_its_scans_large(home, published, monkeypatch):
    """Two groups are asked for all leaves: a scan is at once where its own rows are few, whatever the other holds."""
    version, manifest, ranges = check_index(ServeArgs(workdir=str(published), shard_groups=2))
    plain, threads = Reader.read, []

    def read(reader, work):
        threads.append(threading.current_thread().name.partition("_")[0])
        return plain(reader, work)

    monkeypatch.setattr(Reader, "read", read)
    every_QB = np.tile(np.arange(len(manifest.counts)), (2, 1))
    for leaves in ranges:
        group = ShardGroup(version, leaves)
        threads.clear()
        own = 2 * sum(manifest.counts[leaves.start : leaves.stop]) * QUERY.shape[1]
        assert 0 < own < 2 * sum(manifest.counts) * QUERY.shape[1]
        for small in (own, own - 1):
            monkeypatch.setattr("rayhier.serve.backend.shards.SMALL", small)
            asyncio.run(group.read(Scan(QUERY, every_QB, 5)))
        assert threads == ["MainThread", "scan"]


def copied(published, tmp_path):
    """A copy of a published index that a test may change: its version, manifest, leaves and root."""
    work = shutil.copytree(published, tmp_path / "work")
    version, manifest, (leaves,) = check_index(ServeArgs(workdir=str(work), shard_groups=1))
    return version, manifest, leaves, open_leaf_map(work, version.now).root


def test_versions_are_opened_ahead_and_closed_once_none_names_them(home, published, tmp_path):
    """A replica that the Writer does not reach opens the newest version by itself, and keeps the older one a while."""
    version, manifest, leaves, root = copied(published, tmp_path)

    def pinned():
        return list((root / pins.PINS).glob("v000001-*"))

    before = len(pinned())  # by other tests' groups, whose pins were copied

    async def main():
        group = ShardGroup(version, leaves, 60.0, follows=True)
        assert len(pinned()) == before + 1
        scan = Scan(QUERY, LEAVES, 5)
        await group.read(scan, Seen(manifest.model, 1, 0))
        delete(root, ["d1"])
        await group.check_health()
        await group._newer
        assert set(group._versions) == {1, 2}
        await group.read(scan, Seen(manifest.model, 2, 0))
        await group.check_health()
        assert set(group._versions) == {1, 2}
        group._seconds = 0.0
        await group.check_health()
        assert set(group._versions) == {2}
        group._opening.submit(lambda: None).result()
        assert len(pinned()) == before
        await group.read(scan, Seen(manifest.model, 1, 0))  # an ingress that knows no newer one
        assert set(group._versions) == {1, 2}
        restarted = ShardGroup(version, leaves, follows=True)
        assert set(restarted._versions) == {2}
        with pytest.raises(InputError, match="holds no version 7"):
            await group.read(scan, Seen(manifest.model, 7, 0))
        with pytest.raises(InputError, match="got model fedcba987654; allowed: "):
            await group.read(scan, Seen("fedcba987654", 2, 0))  # of an application that another replaces

    asyncio.run(main())


def test_older_versions_are_closed_though_nobody_searches(home, published, tmp_path):
    version, _, leaves, root = copied(published, tmp_path)

    async def main():
        group = ShardGroup(version, leaves, 0.0)
        for number, name in enumerate(("d1", "d2"), 2):
            delete(root, [name])
            await group.open(number)
        await group.check_health()
        assert set(group._versions) == {3}

    asyncio.run(main())


def test_where_version_follows_on_version_few_older_ones_stay_open(home, published, tmp_path, monkeypatch):
    """Each open version has memory of its own: a server to which documents stream must not open them all."""
    version, manifest, leaves, root = copied(published, tmp_path)
    scan = Scan(QUERY, LEAVES, 5)

    async def main():
        group = ShardGroup(version, leaves, 60.0)
        for number in range(1, 7):
            if number > 1:
                delete(root, [f"d{number}"])
            await group.read(scan, Seen(manifest.model, number, 0))
        assert set(group._versions) == set(range(1, 7))  # within seconds a request may read each
        monkeypatch.setattr("rayhier.serve.backend.shards.SOON", 0.0)
        delete(root, ["d8"])
        await group.read(scan, Seen(manifest.model, 7, 0))
        assert set(group._versions) == {5, 6, 7}
        answer = await group.read(scan, Seen(manifest.model, 2, 0))  # a slow request opens its version anew
        assert set(group._versions) == {2, 5, 6, 7}
        assert len(answer.documents)

    asyncio.run(main())


def test_an_older_version_is_closed_while_newer_ones_follow_without_a_pause(home, published, tmp_path, monkeypatch):
    """Its seconds count from the next version, not from the newest: else a stream of versions keeps all of them."""
    version, manifest, leaves, root = copied(published, tmp_path)
    scan, now = Scan(QUERY, LEAVES, 5), [1000.0]
    monkeypatch.setattr("rayhier.serve.backend.shards.time.monotonic", lambda: now[0])

    async def main():
        group = ShardGroup(version, leaves, 3.0)
        for number in range(1, 9):
            if number > 1:
                delete(root, [f"d{number}"])
            await group.read(scan, Seen(manifest.model, number, 0))
            assert min(group._versions) >= number - 4
            now[0] += 1.0
        assert set(group._versions) == {4, 5, 6, 7, 8}

    asyncio.run(main())


def test_a_version_that_is_closed_as_soon_as_it_was_opened_is_opened_again(home, published, monkeypatch):
    version, manifest, (leaves,) = check_index(ServeArgs(workdir=str(published), shard_groups=1))
    group, opened = ShardGroup(version, leaves), list[int]()
    open_ = group.open

    async def opens(number):
        await open_(number)
        opened.append(number)
        if len(opened) == 1:
            del group._versions[number]

    monkeypatch.setattr(group, "open", opens)
    answer = asyncio.run(group.read(Scan(QUERY, LEAVES, 5), Seen(manifest.model, 1, 0)))
    assert len(answer.documents)
    assert opened == [1, 1]
