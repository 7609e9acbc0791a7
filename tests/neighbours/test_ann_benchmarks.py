"""ann-benchmarks' own runner, plot and table over few vectors: two metrics, one by one and in a batch; refusals."""

import importlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.neighbours import ann
from rayhier.spec import InputError

CHECKOUT = os.environ.get("ANN_BENCHMARKS")
pytestmark = pytest.mark.skipif(
    CHECKOUT is None,
    reason=f"ANN_BENCHMARKS names no checkout: git clone {ann.REPOSITORY}; git checkout {ann.COMMIT}",
)
SEARCHES = {"codes": {"beam": 9, "codec": "pq", "shortlist": [10, 300]}, "vectors": {"beam": [1, 9]}}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the checkout, with rayhier in it."""
    ignored = shutil.ignore_patterns(".git", "data", "results")
    copied = shutil.copytree(CHECKOUT, tmp_path_factory.mktemp("ann") / "checkout", ignore=ignored)
    ann.install(copied)
    return copied


@pytest.fixture
def definitions(tmp_path) -> Path:
    """Settings of a single algorithm: an index of nine leaves for each kind of search."""
    settings = yaml.safe_load((ann.ADAPTER / "config.yml").read_text())
    algorithm = settings["float"]["any"][0]
    algorithm["run_groups"] = {
        name: {"arg_groups": [{"router": {"branching": 9}}], "query_arg_groups": [search]}
        for name, search in SEARCHES.items()
    }
    (tmp_path / "rayhier").mkdir()
    (tmp_path / "rayhier" / "config.yml").write_text(yaml.safe_dump({"float": {"any": [algorithm]}}))
    return tmp_path


@pytest.mark.parametrize(("distance", "batch"), [("angular", []), ("euclidean", ["--batch"])])
def test_its_runner_and_its_plot(checkout, definitions, distance, batch):
    import h5py

    rng, name = np.random.default_rng(0), f"tiny-24-{distance}"
    vector_NM = (rng.standard_normal((1_250, 24)) * rng.uniform(0.5, 2, (1_250, 1))).astype(np.float32)
    ann.write_dataset(checkout, name, vector_NM[50:], vector_NM[:50], distance)
    ann.measure(checkout, name, definitions, "rayhier", "--runs", "1", *batch)
    ann.run(checkout, "plot.py", "--dataset", name, "--output", f"{distance}.png", *batch)
    assert (checkout / f"{distance}.png").stat().st_size > 10_000
    recall, visited = {}, {}
    for path in (checkout / "results" / name).rglob("*.hdf5"):
        with h5py.File(path) as result:
            key = result.attrs["name"].partition("}}, ")[2][:-1]  # keys are sorted
            recall[key], visited[key] = result["metrics/knn"].attrs["mean"], result.attrs["documents_visited"]
            assert result.attrs["batch_mode"] == bool(batch)
            assert result.attrs["dist_comps"] >= 50 * visited[key]
    few, many = (str({"beam": 9, "codec": "pq", "shortlist": listed}) for listed in (10, 300))
    one, all_ = (str({"beam": beam}) for beam in (1, 9))
    assert recall[few] < 0.9 < 0.97 < recall[many]
    assert recall[one] < 0.9 < 0.99 < recall[all_]
    assert visited[few] == visited[many] == visited[all_] == 1_200 > visited[one] > 0


def test_the_table_is_read_from_its_export(checkout, definitions):
    name = "tiny-8-angular"
    vector_NM = np.random.default_rng(1).standard_normal((400, 8)).astype(np.float32)
    ann.write_dataset(checkout, name, vector_NM[10:], vector_NM[:10], "angular")
    ann.measure(checkout, name, definitions, "rayhier", "--runs", "1")
    rows = ann.results(checkout, name)
    assert len(rows) == 4
    (best,) = ann.lines(rows, ["rayhier"], 0.99)
    assert best[:2] == ["0.99", "rayhier"]
    assert float(best[3]) >= 0.99
    (none,) = ann.lines(rows, ["rayhier"], 1.01)
    assert none[2] == "none reaches it"


def test_what_is_not_served_is_refused_by_name(checkout, monkeypatch):
    monkeypatch.syspath_prepend(checkout)
    adapter = importlib.import_module("rayhier.adapters.ann_benchmarks")
    with pytest.raises(InputError, match="metric: got 'jaccard'; allowed: angular, euclidean"):
        adapter.Rayhier("jaccard", 10, {})
    with pytest.raises(InputError, match=r"router\.branch"):
        adapter.Rayhier("angular", 10, {"router": {"branch": 8}})
    with pytest.raises(InputError, match=r"search\.beem"):
        adapter.Rayhier("angular", 10, {}).set_query_arguments({"beem": 8})
