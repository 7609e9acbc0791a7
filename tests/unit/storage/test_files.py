"""Bytes appear under their name all at once, or not at all."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.storage import files
from rayhier.storage.files import File


def test_create_is_put_if_absent(tmp_path):
    path = tmp_path / "deep" / "record.json"
    assert files.create(path, b"first")
    assert not files.create(path, b"second")
    assert path.read_bytes() == b"first"


def test_one_of_many_writers_creates(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda writer: files.create(tmp_path / "record.json", b"%d" % writer), range(64)))
    assert won.count(True) == 1
    assert (tmp_path / "record.json").read_bytes() == b"%d" % won.index(True)


def test_create_takes_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert files.create(Path("runs/a/record.json"), b"x")
    assert (tmp_path / "runs/a/record.json").read_bytes() == b"x"


def test_write_replaces(tmp_path):
    files.replace(tmp_path / "a", b"old")
    files.replace(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_failed_write_leaves_what_was_there(tmp_path):
    files.replace(tmp_path / "a", b"old")

    def fail(temporary: Path) -> None:
        temporary.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write(tmp_path / "a", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_parquet_has_a_row_group_for_each_table(tmp_path):
    tables = [pa.table({"x": [1, 2]}), pa.table({"x": [3]})]
    entry = files.write_parquet(tmp_path, "data/x.parquet", iter(tables), pa.schema([("x", pa.int64())]))
    path = tmp_path / entry.name
    opened = pq.ParquetFile(path)
    assert [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)] == [2, 1]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert entry == File(name="data/x.parquet", bytes=path.stat().st_size, sha256=digest)


def test_failed_parquet_leaves_nothing(tmp_path):
    def groups():
        yield pa.table({"x": [1]})
        raise RuntimeError("shard lost")

    with pytest.raises(RuntimeError, match="shard lost"):
        files.write_parquet(tmp_path, "x.parquet", groups(), pa.schema([("x", pa.int64())]))
    assert list(tmp_path.iterdir()) == []


def test_json_refuses_what_json_cannot_say():
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.to_json({"loss": float("nan")})
