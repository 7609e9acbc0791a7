"""A bucket speaks like pathlib as far as artifacts ask, and its failures are the file system's."""

import io

import obstore
import pyarrow.fs
import pytest

from rayhier.spec import InputError
from rayhier.storage import files, remote
from rayhier.storage.paths import locate, resolve
from rayhier.storage.remote import Remote


@pytest.fixture
def place(s3):
    return Remote.parse(s3)


@pytest.mark.parametrize("text", ["ftp://a/b", "s3://", "s3:///a", "S3://a", "s3://a/../b", "file:///a"])
def test_other_urls_are_refused(text):
    with pytest.raises(InputError, match="allowed: a path, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"):
        locate(text)


def test_home_is_expanded_here_and_what_no_path_can_be_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("workdir", "~/runs") == tmp_path / "runs"
    for text in ("a\0b", "x" * 5000):
        with pytest.raises(InputError, match=r"workdir: got .*, not a path on this machine"):
            resolve("workdir", text)


def test_an_object_that_stands_for_a_folder_is_none(place):
    """Consoles and pyarrow put such an empty object; nothing may take it for a file."""
    fs, path = pyarrow.fs.FileSystem.from_uri(str(place / "a"))
    fs.create_dir(path)
    assert list((place / "a").iterdir()) == []
    assert files.below(place / "a") == []


def test_reading_anywhere(place):
    data = bytes(range(256)) * 8192
    (place / "x").write_bytes(data)
    assert b"".join((place / "x").chunks()) == data
    with (place / "x").open() as opened:
        for offset, whence, size in ((1_500_000, io.SEEK_SET, 10), (-7, io.SEEK_END, 20), (3, io.SEEK_SET, 1_200_000)):
            begin = opened.seek(offset, whence)
            assert opened.read(size) == data[begin : begin + size]


def test_an_upload_of_several_parts(place, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "PART", 5 << 20)
    data = bytes(range(256)) * (11 << 12)
    (tmp_path / "x").write_bytes(data)
    (place / "x").upload(tmp_path / "x")
    assert (place / "x").read_bytes() == data


def test_a_create_sent_twice_still_succeeds(place, monkeypatch):
    """The first answer is lost after the store has written, so the client's second try finds the key taken."""
    put = obstore.put

    def twice(*given, **options):
        put(*given, **options)
        return put(*given, **options)

    monkeypatch.setattr(obstore, "put", twice)
    assert (place / "record.json").create(b"mine")


@pytest.mark.parametrize(
    ("status", "said"),
    [(403, "AccessDenied: no way"), (404, "NoSuchBucket: no way"), (301, "incorrectly configured region")],
)
def test_failures_are_the_file_systems(answering, status, said):
    body = "<Error><Code>{}</Code><Message>no\nway</Message></Error>".format(said.partition(":")[0])
    answering(GET=(status, body), PUT=(status, body))
    closed = Remote(f"s3://answers-{status}", "a")
    for ask in (Remote.reach, lambda path: path.write_bytes(b""), lambda path: path.create(b"")):
        with pytest.raises(OSError, match=said) as caught:
            ask(closed)
        assert caught.value.filename == str(closed)
        assert len(caught.value.strerror.splitlines()) == 1


def test_a_store_without_put_if_absent_is_refused(place, monkeypatch):
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda *given, mode=None, **options: put(*given, **options))
    with pytest.raises(OSError, match="does not support put-if-absent"):
        files.probe(place)
    assert files.below(place) == []
