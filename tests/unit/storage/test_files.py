"""Bytes appear under their name all at once, or not at all."""

import contextlib
import errno
import hashlib
import io
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.storage import files, parquet
from rayhier.storage.files import File
from rayhier.storage.paths import locate


def test_one_of_many_writers_creates(folder):
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda writer: files.create(folder / "record.json", b"%d" % writer), range(64)))
    assert won.count(True) == 1
    assert (folder / "record.json").read_bytes() == b"%d" % won.index(True)


def test_failed_write_leaves_what_was_there(folder):
    files.replace(folder / "a", b"old")

    def fail(temporary):
        temporary.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write(folder / "a", fail)
    assert files.below(folder) == ["a"]
    assert (folder / "a").read_bytes() == b"old"


@pytest.mark.parametrize("publish", [files.create, files.replace])
def test_bytes_reach_the_device_before_their_name_and_the_name_before_the_return(tmp_path, monkeypatch, publish):
    steps = []

    def noted(step):
        return lambda *given: steps.append(step) or real[step](*given)

    real = {"link": os.link, "rename": Path.replace, "fsync": os.fsync}
    monkeypatch.setattr(os, "link", noted("link"))
    monkeypatch.setattr(Path, "replace", noted("rename"))
    monkeypatch.setattr(os, "fsync", lambda opened: steps.append(os.fstat(opened).st_ino) or real["fsync"](opened))
    publish(tmp_path / "record.json", b"x")
    shown = "link" if publish is files.create else "rename"
    assert steps == [(tmp_path / "record.json").stat().st_ino, shown, tmp_path.stat().st_ino]


@pytest.mark.parametrize(("code", "is_error"), [(errno.EIO, True), (errno.EINVAL, False), (errno.ENOTSUP, False)])
def test_a_folder_that_cannot_be_flushed_is_an_error(tmp_path, monkeypatch, code, is_error):
    plain = os.fsync

    def fsync(opened):
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            raise OSError(code, os.strerror(code))
        plain(opened)

    monkeypatch.setattr(os, "fsync", fsync)
    for publish in (files.create, files.create, files.replace):  # the second time the name is there
        with pytest.raises(OSError, match="error") if is_error else contextlib.nullcontext():
            publish(tmp_path / publish.__name__, b"x")


def test_the_name_of_a_new_folder_reaches_the_device(tmp_path, monkeypatch):
    flushed, plain = set(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda opened: flushed.add(os.fstat(opened).st_ino) or plain(opened))
    files.create(tmp_path / "a" / "b" / "c", b"x")
    assert {tmp_path.stat().st_ino, (tmp_path / "a").stat().st_ino, (tmp_path / "a" / "b").stat().st_ino} <= flushed


def test_a_link_that_was_sent_twice_is_made_once(tmp_path, monkeypatch):
    plain = os.link

    def link(*given):
        plain(*given)
        plain(*given)

    monkeypatch.setattr(os, "link", link)
    assert files.create(tmp_path / "a", b"x")
    assert not files.create(tmp_path / "a", b"y")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_flipped_bit_in_a_stored_number_is_refused(folder):
    """The page's checksum finds it: nothing else tells one number from another."""
    x_N = (
        np.random.default_rng(0).integers(2**32, size=500, dtype=np.uint32).view(np.float32)
    )  # so that none compresses
    file = parquet.write(folder, "x.parquet", [pa.table({"x": x_N})], pa.schema([("x", pa.float32())]))
    path = folder / file.name
    data = bytearray(path.read_bytes())
    data[data.index(x_N[200].tobytes())] ^= 1
    files.replace(path, bytes(data))
    with pytest.raises(OSError, match="CRC checksum"):
        parquet.read(path)
    with pytest.raises(OSError, match="CRC checksum"):
        parquet.read_rows(path, ["x"], 0, 1)


def test_parquet_has_a_row_group_for_each_table(folder):
    tables = [pa.table({"x": [1, 2]}), pa.table({"x": [3]})]
    entry = parquet.write(folder, "data/x.parquet", iter(tables), pa.schema([("x", pa.int64())]))
    path = folder / entry.name
    opened = pq.ParquetFile(io.BytesIO(path.read_bytes()))
    assert [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)] == [2, 1]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert entry == File(name="data/x.parquet", bytes=path.stat().st_size, sha256=digest)


def test_a_filled_folder_lies_where_it_should(folder):
    with files.filling(folder / "encoder") as here:
        (here / "1_Pooling").mkdir()
        (here / "1_Pooling" / "config.json").write_text("{}")
        (here / "weights").write_bytes(b"w")
    assert files.below(folder) == ["encoder/1_Pooling/config.json", "encoder/weights"]
    assert (folder / "encoder" / "weights").read_bytes() == b"w"


def test_a_folder_whose_filling_fails_is_not_uploaded(s3):
    place = locate(s3) / "encoder"

    def fail():
        with files.filling(place) as here:
            (here / "weights").write_bytes(b"half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail()
    assert files.below(place) == []


def test_remove_takes_all_below_and_nothing_beside(folder):
    for name in ("a/x", "a/b/y", "ab", "a.b"):
        files.create(folder / name, b"")
    files.remove(folder / "a")
    assert files.below(folder) == ["a.b", "ab"]
    files.remove(folder / "a")


def test_probe_leaves_nothing(folder, monkeypatch):
    """Of what it writes, and tries to write again."""
    plain, tried = files.create, []

    def create(path, data):
        tried.append((files.below(folder), plain(path, data)))
        return tried[-1][1]

    monkeypatch.setattr(files, "create", create)
    files.probe(folder)
    (((written,), again),) = tried
    assert written.startswith(".writable-")
    assert again is False
    assert files.below(folder) == []


def test_json_refuses_what_json_cannot_say():
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.to_json({"loss": float("nan")})
