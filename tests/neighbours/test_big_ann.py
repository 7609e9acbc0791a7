"""big-ann-benchmarks' own runner of streams over its `random-xs`: insertions, deletions, replacements; refusals."""

import importlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.neighbours import big_ann
from benchmarks.neighbours.checkouts import run
from rayhier.spec import InputError

CHECKOUT = os.environ.get("BIG_ANN_BENCHMARKS")
pytestmark = pytest.mark.skipif(
    CHECKOUT is None,
    reason=f"BIG_ANN_BENCHMARKS names no checkout: git clone {big_ann.REPOSITORY}; git checkout {big_ann.COMMIT}",
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the checkout, with its vectors, and rayhier searched in one way."""
    ignored = shutil.ignore_patterns(".git", "data", "results")
    copied = shutil.copytree(CHECKOUT, tmp_path_factory.mktemp("big") / "checkout", ignore=ignored)
    big_ann.install(copied)
    config = copied / "neurips23" / "streaming" / "rayhier" / "config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["any"]["rayhier"]["run-groups"]["base"]["query-args"] = '[{"how": "leaves", "beam": 64}]'
    config.write_text(yaml.safe_dump(settings))
    run(copied, "create_dataset.py", "--dataset", big_ann.DATASET)
    return copied


def test_true_neighbours_are_those_of_its_own_file(checkout):
    folder = checkout / "data" / "random10000"
    vector_NM, query_QM = (big_ann.matrix(folder / name) for name in ("data_10000_20", "queries_1000_20"))
    tag_QK, square_QK = big_ann.true_neighbours(query_QM, vector_NM, np.arange(len(vector_NM)))
    with (folder / "gt_10000_1000_20").open("rb") as file:
        q, k = np.fromfile(file, np.uint32, 2)
        theirs_QK = np.fromfile(file, np.uint32, q * k).reshape(q, k)
        distance_QK = np.fromfile(file, np.float32, q * k).reshape(q, k)
    assert (tag_QK == theirs_QK).mean() > 0.9999  # ties
    assert np.sqrt(square_QK) == pytest.approx(distance_QK, rel=1e-4)


def test_tags_follow_a_runbook():
    runbook = [
        {"operation": "insert", "start": 0, "end": 4},
        {"operation": "search"},
        {"operation": "replace", "tags_start": 0, "tags_end": 2, "ids_start": 7, "ids_end": 9},
        {"operation": "delete", "start": 1, "end": 3},
        {"operation": "search"},
    ]
    assert list(big_ann.standing(runbook)) == [(2, {0: 0, 1: 1, 2: 2, 3: 3}), (5, {0: 7, 3: 3})]


@pytest.mark.parametrize(("runbook", "searches"), [("simple_runbook.yaml", 3), ("simple_replace_runbook.yaml", 4)])
def test_its_runner_measures_recall(checkout, runbook, searches):
    big_ann.write_truth(checkout, runbook)
    (row,) = big_ann.measure(checkout, runbook)
    assert len(row["recalls"]) == searches
    assert min(row["recalls"]) > 0.98
    assert 64 < row["documents_visited"] < 1_000


def test_what_is_not_served_is_refused_by_name(checkout, monkeypatch):
    monkeypatch.syspath_prepend(checkout)
    adapter = importlib.import_module("rayhier.adapters.big_ann")
    with pytest.raises(InputError, match="metric: got 'hamming'; allowed: angular, euclidean, ip"):
        adapter.Rayhier("hamming", 10, {})
    index = adapter.Rayhier("ip", 2, {})
    index.setup("int8", 10, 2)
    index.insert(np.array([[3, 1], [2, 0], [0, 1]], np.int8), np.array([4, 5, 9], np.uint32))
    with pytest.raises(InputError, match="1 in the index already"):
        index.insert(np.array([[1, 1]], np.int8), np.array([5], np.uint32))
    with pytest.raises(InputError, match="1 not in the index"):
        index.delete(np.array([6], np.uint32))
    index.query(np.array([[1, 0]], np.int8), 2)
    assert index.get_results().tolist() == [[4, 5]]
    index.set_query_arguments({"how": "leaves"})  # a runbook begins anew
    index.insert(np.array([[1, 1], [2, 2]], np.int8), np.array([5, 6], np.uint32))
    index.query(np.array([[1, 0]], np.int8), 2)
    assert index.get_results().tolist() == [[6, 5]]
    index.done()
