"""Without faiss the error says which package to choose."""

import importlib
import sys

import pytest

from rayhier.cluster import library
from rayhier.spec import InputError


def test_no_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(
        InputError, match=r"choose one: pip install 'rayhier\[cpu\]' .* or pip install 'rayhier\[gpu\]'"
    ):
        importlib.reload(library)
