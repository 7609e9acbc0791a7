"""Places as the spec and the workers of a job give them."""

from pathlib import Path

import pytest

from rayhier.spec import InputError
from rayhier.storage.paths import locate, resolve
from rayhier.storage.remote import Remote


@pytest.mark.parametrize("text", ["/a/b", "a/b", "s3://bucket/a", "gs://bucket"])
def test_what_a_location_says_is_a_location_again(text):
    found = locate(text)
    assert isinstance(found, Remote if "://" in text else Path)
    assert str(found) == text


def test_home_is_expanded_here(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("workdir", "~/runs") == tmp_path / "runs"


@pytest.mark.parametrize("text", ["a\0b", "x" * 5000])
def test_what_no_path_can_be_is_refused(text):
    with pytest.raises(InputError, match=r"workdir: got .*, not a path on this machine"):
        resolve("workdir", text)
