"""An adapter without its library says in a line what to install."""

import importlib
import sys

import pytest

LIBRARIES = {
    "haystack": ("haystack", "haystack"),
    "langchain": ("langchain_core", "langchain"),
    "llama_index": ("llama_index", "llama-index"),
    "mteb": ("mteb", "mteb"),
    "pyterrier": ("pyterrier", "pyterrier"),
}


@pytest.mark.parametrize("adapter", LIBRARIES)
def test_a_library_that_is_missing_is_named_with_its_extra(adapter, monkeypatch):
    library, extra = LIBRARIES[adapter]
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"rayhier.adapters.{adapter}", raising=False)
    with pytest.raises(ImportError, match=rf"^{library}\S* is not installed: pip install 'rayhier\[{extra}\]'$"):
        importlib.import_module(f"rayhier.adapters.{adapter}")
