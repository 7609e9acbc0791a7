"""Places as the spec and the workers of a job give them."""

import pytest

from rayhier.spec import InputError
from rayhier.storage.paths import resolve


def test_home_is_expanded_here(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("workdir", "~/runs") == tmp_path / "runs"


@pytest.mark.parametrize("text", ["a\0b", "x" * 5000])
def test_what_no_path_can_be_is_refused(text):
    with pytest.raises(InputError, match=r"workdir: got .*, not a path on this machine"):
        resolve("workdir", text)
