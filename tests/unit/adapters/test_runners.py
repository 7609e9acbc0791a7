"""Adapters of ann-benchmarks and big-ann-benchmarks, over stand-ins for the classes of a checkout."""

import importlib
import sys
from types import ModuleType

import numpy as np
import pytest

from rayhier.spec import InputError


@pytest.fixture
def adapter(monkeypatch):
    """`adapter(name, base)`: the module of an adapter, whose base class is an empty one at a dotted place."""

    def imported(name, base):
        module, _, kind = base.rpartition(".")
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        setattr(sys.modules[module], kind, type(kind, (), {}))
        monkeypatch.delitem(sys.modules, f"rayhier.adapters.{name}", raising=False)
        return importlib.import_module(f"rayhier.adapters.{name}")

    return imported


def test_ann_benchmarks(adapter):
    rayhier = adapter("ann_benchmarks", "ann_benchmarks.algorithms.base.module.BaseANN").RayhierANN
    vector_NM = np.random.default_rng(0).standard_normal((400, 24)).astype(np.float32)
    index = rayhier("angular", 10, {"router": {"branching": 9}})
    index.fit(vector_NM)
    index.set_query_arguments({"beam": 9})
    assert index.query(vector_NM[7], 3)[0] == 7
    index.batch_query(vector_NM[:50], 10)
    assert [found[0] for found in index.get_batch_results()] == list(range(50))
    told = index.get_additional()
    assert told["documents_visited"] == 400
    assert told["dist_comps"] >= 51 * 400
    assert "'beam': 9" in str(index)
    index.done()
    with pytest.raises(InputError, match="metric: got 'jaccard'; allowed: angular, euclidean"):
        rayhier("jaccard", 10, {})
    with pytest.raises(InputError, match=r"router\.branch"):
        rayhier("angular", 10, {"router": {"branch": 8}})
    with pytest.raises(InputError, match=r"search\.beem"):
        rayhier("angular", 10, {}).set_query_arguments({"beem": 8})


def test_big_ann_benchmarks(adapter):
    rayhier = adapter("big_ann", "neurips23.streaming.base.BaseStreamingANN").RayhierStreamingANN
    with pytest.raises(InputError, match="metric: got 'hamming'; allowed: angular, euclidean, ip"):
        rayhier("hamming", 10, {})
    index = rayhier("ip", 2, {})
    index.setup("int8", 10, 2)
    index.insert(np.array([[3, 1], [2, 0], [0, 1]], np.int8), np.array([4, 5, 9], np.uint32))
    with pytest.raises(InputError, match="1 in the index already"):
        index.insert(np.array([[1, 1]], np.int8), np.array([5], np.uint32))
    with pytest.raises(InputError, match="1 not in the index"):
        index.delete(np.array([6], np.uint32))
    index.query(np.array([[1, 0]], np.int8), 2)
    assert index.res.tolist() == [[4, 5]]
    index.replace(np.array([[9, 9]], np.int8), np.array([5], np.uint32))
    index.query(np.array([[1, 0]], np.int8), 2)
    assert index.res.tolist() == [[5, 4]]
    index.set_query_arguments({"beam": 4})  # a runbook begins again, without vectors
    index.insert(np.array([[1, 1], [2, 2]], np.int8), np.array([5, 6], np.uint32))
    index.query(np.array([[1, 0]], np.int8), 2)
    assert index.res.tolist() == [[6, 5]]
    index.done()
