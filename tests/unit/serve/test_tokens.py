"""Tokens: what a file must hold, what each token opens, and that a new one counts without a restart."""

import logging
import os

import pytest

from rayhier.serve.app import build
from rayhier.serve.args import ServeArgs
from rayhier.serve.errors import ApiError
from rayhier.serve.http import tokens as module
from rayhier.serve.http.tokens import Tokens
from rayhier.spec import InputError

TOKENS = [
    (None, "cannot be read: No such file"),
    (b"\n", "is empty; allowed: one line, the token"),
    (b"sesame-1\nsesame-2\n", "holds more than a token"),
    ("sésame".encode(), "holds no token"),
]


@pytest.mark.parametrize("name", ["token_file", "write_token_file"])
def test_a_token_file_without_a_token(tmp_path, published, name):
    (tmp_path / "read").write_text("sesame-0")
    path = tmp_path / "token"
    for content, said in TOKENS:
        if content is not None:
            path.write_bytes(content)
        given = {"token_file": str(tmp_path / "read"), name: str(path)}
        with pytest.raises(InputError, match=f"^{name}: {path} {said}") as caught:
            build(ServeArgs(workdir=str(published), **given))
        assert "sesame" not in str(caught.value)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Both files; they are looked at for every request."""
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    (tmp_path / "read").write_text("sesame-1\n")
    (tmp_path / "write").write_text("poppy-1\n")
    return tmp_path / "read", tmp_path / "write"


@pytest.fixture
def tokens(files):
    return Tokens(*map(str, files))


def opens(tokens, token, *, writes=False):
    """Status that a token gets."""
    try:
        tokens.check(f"Bearer {token}".encode(), writes=writes)
    except ApiError as error:
        return 500 if "sesame" in error.message or "poppy" in error.message else error.status
    return 200


def test_one_token_reads_the_other_writes_too(tokens):
    assert [opens(tokens, token) for token in ("sesame-1", "poppy-1", "other", "")] == [200, 200, 401, 401]
    assert [opens(tokens, token, writes=True) for token in ("sesame-1", "poppy-1", "other")] == [403, 200, 401]


def test_a_token_alone(files):
    read, write = map(str, files)
    only_reads, the_one = Tokens(read), Tokens(None, write)
    assert (opens(only_reads, "sesame-1"), opens(only_reads, "sesame-1", writes=True)) == (200, 403)
    with pytest.raises(ApiError, match="a server that was started with a write_token_file"):
        only_reads.check(b"Bearer sesame-1", writes=True)
    for writes in (False, True):
        assert (opens(the_one, "poppy-1", writes=writes), opens(the_one, "", writes=writes)) == (200, 401)
    assert not Tokens(None).required
    assert opens(Tokens(None), "", writes=True) == 200


def test_both_the_same(files, published):
    files[1].write_text(" sesame-1")
    with pytest.raises(InputError, match=r"write_token_file: holds the same token as token_file") as caught:
        build(ServeArgs(workdir=str(published), token_file=str(files[0]), write_token_file=str(files[1])))
    assert "sesame" not in str(caught.value)


def test_a_new_token_counts_at_once_even_of_the_same_size_and_time(files, tokens):
    before = files[0].stat()
    files[0].write_text("sesame-2\n")
    os.utime(files[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [opens(tokens, token) for token in ("sesame-1", "sesame-2", "poppy-1")] == [401, 200, 200]


DAMAGES = {
    "vanished": lambda path: path.unlink(),
    "two lines": lambda path: path.write_text("sesame-2\nsesame-3"),
    "the other token": lambda path: path.write_text("poppy-1"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_file_that_goes_leaves_its_token(files, tokens, caplog, damage):
    damage(files[0])
    with caplog.at_level(logging.WARNING, "ray.serve"):
        assert [opens(tokens, "sesame-1") for _ in range(3)] == [200] * 3
    (record,) = caplog.records
    assert record.message.startswith("the token of token_file was not replaced: ")
    assert "sesame" not in record.message
    files[0].write_text("sesame-4")
    assert (opens(tokens, "sesame-1"), opens(tokens, "sesame-4")) == (401, 200)


@pytest.mark.parametrize("broken", [0, 1])
def test_one_token_is_replaced_while_the_file_of_the_other_is_broken(files, tokens, broken):
    files[broken].unlink()
    files[1 - broken].write_text("clover-2")
    kept, gone = ("sesame-1", "poppy-1")[broken], ("poppy-1", "sesame-1")[broken]
    assert [opens(tokens, token) for token in (kept, gone, "clover-2")] == [200, 401, 200]
    assert opens(tokens, "clover-2", writes=True) == (200 if broken == 0 else 403)


def test_a_token_of_both_files_counts_once_the_other_file_has_another(files, tokens):
    files[0].write_text("poppy-1")
    assert [opens(tokens, token, writes=True) for token in ("sesame-1", "poppy-1")] == [403, 200]
    files[1].write_text("poppy-2")
    assert [opens(tokens, token, writes=True) for token in ("sesame-1", "poppy-1", "poppy-2")] == [401, 403, 200]
