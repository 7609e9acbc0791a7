"""Which form scans: the native extension, or numpy."""

import sys
from types import SimpleNamespace

import pytest

from rayhier.search import native
from rayhier.search.native import reference


@pytest.mark.parametrize(
    ("module", "reason"), [(None, "halted"), (SimpleNamespace(ABI=0), "has version 0, not 2")], ids=["missing", "older"]
)
def test_numpy_scans_where_there_is_no_extension_that_fits(module, reason, monkeypatch):
    said = []
    monkeypatch.setitem(sys.modules, "rayhier_native", module)
    monkeypatch.setattr(native, "say", said.append)
    native.extension.cache_clear()
    try:
        assert native.form() == "numpy"
        assert isinstance(native.scanned_rows(8, 3, []), reference.CodedRows)
    finally:
        native.extension.cache_clear()
    (line,) = said
    assert "numpy scans the index, which takes longer" in line
    assert reason in line
