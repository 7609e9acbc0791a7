"""Adapt a text encoder and learn a search index for your corpus, measure the gain, search the index and serve it.

`rayhier.run(spec)` trains an encoder and builds an index, `rayhier.open(workdir)` opens the index: docs/python.md.
"""

import importlib
import os
from typing import Any

# Threads that spin while they wait made small training steps seventy times slower when another process was busy
# (docs/results/LOG.md). OpenMP reads OMP_WAIT_POLICY once, when torch or faiss loads OpenMP.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

PLACES = {
    "open": ("rayhier.python", "open_index"),
    "Index": ("rayhier.python", "Index"),
    "Results": ("rayhier.python", "Results"),
    "Hit": ("rayhier.search.request.hits", "Hit"),
    "Client": ("rayhier.serve.client", "Client"),
    "AsyncClient": ("rayhier.serve.client", "AsyncClient"),
    "ApiError": ("rayhier.serve.errors", "ApiError"),
    "InputError": ("rayhier.spec.errors", "InputError"),
    "JobSpec": ("rayhier.spec", "JobSpec"),
    "load": ("rayhier.spec", "load"),
}
"""Public name -> its module and its name there. The module is imported when the public name is first used."""
__all__ = ["run", *PLACES]


def __getattr__(name: str) -> Any:
    """Import a public name of the package at its first use. AttributeError if `name` is not public."""
    if name == "run":
        return importlib.import_module("rayhier.run")  # calling this module runs a job
    if name not in PLACES:
        raise AttributeError(f"module 'rayhier' has no attribute {name!r}; allowed: {', '.join(__all__)}")
    module, attribute = PLACES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
