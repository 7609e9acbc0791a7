"""What runs share: the tiny corpus run up to its vectors and up to its index, and stages without Ray."""

import functools
import shutil
from pathlib import Path

import pytest

from rayhier.serve.config import ServeConfig
from rayhier.threads import threads

from ..conftest import make_corpus, write_spec
from .conformance import TOKEN, WRITE_TOKEN
from .in_process import in_this_process, make

SHIPPED = Path(__file__).parents[2] / "jobs" / "serve.yaml"


@pytest.fixture(scope="session")
def embedded(cluster, tmp_path_factory, tiny_model):
    """A folder with the tiny corpus, its spec and `work`, run up to the vectors. Not to be changed by a test.

    A copy of `work` is where any other spec of the tiny corpus and encoder goes on: fingerprints know no paths.
    """
    folder = tmp_path_factory.mktemp("embedded")
    make(write_spec(folder, make_corpus(folder / "corpus"), tiny_model), "corpus", "embed")
    return folder


@pytest.fixture(scope="session")
def built(embedded, tmp_path_factory, tiny_model):
    """A folder with the tiny corpus, its spec and `work`, run up to the index. Not to be changed by a test."""
    folder = shutil.copytree(embedded, tmp_path_factory.mktemp("built"), dirs_exist_ok=True)
    make(write_spec(folder, folder / "corpus", tiny_model), "test", "train", "index")
    return folder


@pytest.fixture
def work(built, tmp_path):
    """A copy of that run's workdir, to be changed."""
    return shutil.copytree(built / "work", tmp_path / "work")


@pytest.fixture
def configured(work, tmp_path, cluster, port):
    """`configured("shard_seconds: 2", …)`: the shipped config of Ray Serve for the tiny index, with more arguments."""
    from ray import serve

    from rayhier.serve.app import checked
    from rayhier.serve.config import look

    def config(*arguments: str) -> ServeConfig:
        (tmp_path / "token").write_text(TOKEN)
        (tmp_path / "write").write_text(WRITE_TOKEN)
        patient = "limits: {queue_seconds: 30}"  # tests of other processes make this one wait
        lines = [f"write_token_file: {tmp_path / 'write'}", patient, *arguments]
        path = tmp_path / "serve.yaml"
        path.write_text(SHIPPED.read_text().replace("token_file: null", "\n      ".join(lines), 1))
        return checked(look(path, str(work), str(tmp_path / "token"), port))

    yield config
    serve.shutdown()


@pytest.fixture
def here(monkeypatch):
    """`here()`: runs are in this process from here on."""
    with threads():
        yield functools.partial(in_this_process, monkeypatch)
