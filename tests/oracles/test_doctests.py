"""Worked examples in docstrings are true."""

import doctest
import importlib
from pathlib import Path

import pytest

import rayhier

ROOT = Path(rayhier.__file__).parent
WITH_EXAMPLES = [
    "rayhier." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(ROOT.rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name):
    found = doctest.testmod(importlib.import_module(name), verbose=False)
    assert found.attempted > 0
    assert found.failed == 0
