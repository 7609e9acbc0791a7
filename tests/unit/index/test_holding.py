"""Writers and readers beside a vacuum: what they need stays, what they wrote is published whole or not at all."""

import os
import time

import numpy as np
import pytest

from rayhier.index import change
from rayhier.index.vacuum import vacuum
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.storage import files, leaf_map, pins
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, batch, compacted, content
from .conftest import L, N, documents, unit


@pytest.fixture
def folder(anywhere):
    return anywhere


def aged(root):
    """All files look two days old."""
    for name in files.below(root):
        os.utime(root / name, (time.time() - 172_800,) * 2)


@pytest.mark.parametrize("anywhere", ["local"], indirect=True)  # objects of a bucket are as old as they are
def test_what_a_writer_wrote_days_ago_stays_until_it_is_published(made):
    def slow():
        yield batch(["a"])[0]
        aged(made.root)
        assert vacuum(made.root).files == 0
        yield batch(["b"])[0]

    change.add(made.root, made.assign, slow(), FACTOR)
    assert verify(made.root) == [1, 2]
    aged(made.root)
    assert vacuum(made.root).files == 0
    assert not pins.written(made.root)


def test_a_writer_reads_on_beside_a_compaction_and_a_vacuum(made):
    def slow():
        yield batch(["a"])[0]
        change.delete(made.root, ["d001"])
        compacted(made.root)
        vacuum(made.root, hours=0)
        yield batch(["b"])[0]

    after = change.add(made.root, made.assign, slow(), FACTOR)
    assert after.manifest.documents == N + 1
    assert verify(made.root)[-1] == 4


@pytest.mark.parametrize("cut", [False, True])
def test_a_version_whose_files_are_gone_or_cut_is_not_published(made, cut):
    def unlucky():
        yield batch(["a"])[0]
        yield batch(["c"])[0]  # the file of the first is there, that of this one may be on its way
        name = next(name for name in files.below(made.root) if "data/added-" in name)
        data = (made.root / name).read_bytes()
        (made.root / name).unlink()
        if cut:
            files.replace(made.root / name, data[:-1])
        yield batch(["b"])[0]

    with pytest.raises(
        InputError, match=r"added-.*(is missing|bytes, .* were written); nothing was published; run again"
    ):
        change.add(made.root, made.assign, unlucky(), FACTOR)
    assert verify(made.root) == [1]


def test_what_was_refused_leaves_no_files(made):
    before = files.below(made.root)
    with pytest.raises(InputError, match="more than once"):
        change.add(made.root, made.assign, batch(["a"]) + batch(["b"]) + batch(["a"], 3), FACTOR)
    assert files.below(made.root) == before


def test_a_reader_that_was_too_late_reads_the_next_version(made, monkeypatch):
    """Between its look at the newest version and its pin that version is superseded and vacuumed."""
    real, done = pins.pinned, []

    def late(root, version, *arguments, **options):
        if not done:
            done.append(version)
            change.delete(made.root, ["d001"])
            vacuum(made.root)
        return real(root, version, *arguments, **options)

    monkeypatch.setattr(pins, "pinned", late)
    with pins.reading(made.root) as there:
        assert (done, there.manifest.version) == ([1], 2)
        assert content(there)


def test_a_reader_that_may_not_write_reads(made, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pins, "_write", refused)
    with pins.reading(made.root) as there:
        assert there.manifest.version == 1


def damage(root, version):
    path = root / "manifests" / f"v{version:06d}.json"
    data = path.read_bytes()
    path.unlink()
    files.replace(path, data[: len(data) // 2])


def test_a_damaged_newest_manifest_is_left_behind_by_a_rollback(made):
    before = content(LeafMap.open(made.root))
    change.delete(made.root, ["d001"])
    damage(made.root, 2)
    with pytest.raises(InputError, match=r"v000002\.json.*rollback"):
        LeafMap.open(made.root)
    with pytest.raises(InputError, match=r"v000002\.json"):
        vacuum(made.root)
    assert content(change.rollback(made.root, 1)) == before
    assert vacuum(made.root).versions == [1, 2]
    assert verify(made.root) == [3]


def test_a_vacuum_beside_a_writer_that_renames_and_another_vacuum(made, monkeypatch):
    change.delete(made.root, ["d001"])
    real = files.below
    monkeypatch.setattr(files, "below", lambda root: [*real(root), "data/.added-0.parquet.tmp"])
    assert vacuum(made.root).versions == [1]


def test_upserts_keep_the_cap(made):
    """All 200 documents anew and alike: the older rows of each count once, and no leaf grows beyond the cap."""
    near = unit(5, N, 8) * 0.2 + unit(6, 1, 8)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    batches = [
        (documents(made.ids[begin : begin + 50]), Encoded(near[begin : begin + 50].astype(np.float32)))
        for begin in range(0, N, 50)
    ]
    after = change.upsert(made.root, made.assign, batches, 1.5)
    counts = np.array(after.manifest.counts)
    assert counts.max() <= np.ceil(1.5 * counts.sum() / L)
    assert after.manifest.moved > 0
    assert after.manifest.documents == N
    verify(made.root)


def test_files_stay_where_an_error_may_hide_that_they_were_published(made, monkeypatch):
    publish = leaf_map.publish

    def broken(root, manifest):
        publish(root, manifest)
        raise OSError(104, "Connection reset by peer")

    monkeypatch.setattr(leaf_map, "publish", broken)
    with pytest.raises(OSError, match="Connection reset"):
        change.add(made.root, made.assign, batch(["a"]), FACTOR)
    assert verify(made.root) == [1, 2]
    assert LeafMap.open(made.root).manifest.documents == N + 1


def test_a_version_pinned_while_its_manifest_is_removed_stays(made, monkeypatch):
    """A reader that pins between a vacuum's look at pins and its removal of manifests, and a second vacuum later."""
    change.delete(made.root, ["d001"])
    remove, held = leaf_map.remove_version, []

    def late(root, version):
        reader = pins.reading(root, version)
        held.append((reader, reader.__enter__()))
        remove(root, version)

    monkeypatch.setattr(leaf_map, "remove_version", late)
    swept = vacuum(made.root, hours=0)
    ((reader, there),) = held
    assert (swept.versions, swept.held, swept.files) == ([], [1], 0)
    assert vacuum(made.root, hours=0).files == 0
    assert content(there)
    reader.__exit__(None, None, None)
    monkeypatch.undo()
    assert vacuum(made.root).versions == [1]


def test_a_writer_that_comes_and_goes_during_a_vacuum(made, monkeypatch):
    """All of its work falls between the look for writers and the removal of files."""
    real = pins.held
    looks = []

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


def test_a_pin_that_cannot_be_removed_hides_nothing(made, monkeypatch):
    root = type(made.root)
    real = root.unlink

    def unlink(path, **options):
        if "/pins/" in str(path) and not path.name.endswith(".tmp"):
            raise OSError(101, "Network is unreachable")
        return real(path, **options)

    monkeypatch.setattr(root, "unlink", unlink)
    assert change.add(made.root, made.assign, batch(["a"]), FACTOR).manifest.version == 2
