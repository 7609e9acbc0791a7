"""A workdir with a published model and index, made without Ray: two leaves a document, three shards."""

import asyncio
import inspect
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from fastapi.testclient import TestClient

from rayhier.model.ehi import EhiRouter
from rayhier.model.encoder import ResidualHead, save_encoder
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.serve.http.tokens import Tokens
from rayhier.spec import JobSpec
from rayhier.storage import current, pins, schemas

from ...toys import publish
from .server import Server
from .stand_ins import TOKEN, Canned, app_of


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine, by its module's `RUN` if there is one."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.function).parameters}
    getattr(pyfuncitem.module, "RUN", asyncio.run)(pyfuncitem.function(**given))
    return True


N, L = 120, 9
WORDS = [f"{one}{two}" for one in ("oak", "elm", "fern", "moss") for two in ("", "leaf", "root", "tree", "wood")]
TEXTS = [" ".join(WORDS[(n * step + n // 20) % 20] for step in range(1, 7)) for n in range(N)]


MODEL, INDEX = "0123456789ab", "ba9876543210"
OTHER_MODEL, OTHER_INDEX = "abcdef012345", "543210fedcba"


def make_published(work, tiny_model, model=MODEL, index=INDEX, head=None, before=None, router_type="ehi", **corpus):
    """Publish both artifacts below `work` and make them current; with a `head` [m, m] on the encoder's vectors.

    Leaves of a `router_type` learned_ivf can be split.
    """
    routers = {"ehi": {"type": "ehi", "branching": L}, "learned_ivf": {"type": "learned_ivf"}}
    spec = JobSpec.model_validate(
        {
            "name": "by-hand",
            "workdir": str(work),
            "corpus": {"type": "jsonl", "documents": "nowhere.jsonl", "fields": {"year": "int"}, **corpus},
            "encoder": {"model": str(tiny_model), "max_length": 32, "precision": "float32"},
            "router": routers[router_type],
            "index": {"vectors": "float32"} if router_type == "learned_ivf" else {},
            "search": {"k": 7, "beam": 2},
            "cluster": {"address": "local"},
        }
    )
    encoder = tiny_model
    if head is not None:
        trained, encoder = ResidualHead(len(head)), work / f"encoder-{model}"
        trained.weight.data.copy_(torch.from_numpy(head))
        save_encoder(tiny_model, trained, 32, encoder)
    rows = [{"doc_id": f"d{n}", "title": f"title {n}", "text": TEXTS[n], "year": 1900 + n} for n in range(N)]
    documents = pa.Table.from_pylist(rows, schemas.documents({"year": "int"}, passages=False))
    now = publish(work, spec, encoder, ROUTERS[router_type], documents, model, index)
    current.write(work, now.model_copy(update={"before": before}))
    return work


def _ehi(vector_NM):
    router = EhiRouter(vector_NM.shape[1], L, 1, "none")
    router.warm_start(vector_NM[:L])
    return router


def _learned_ivf(vector_NM):
    router = LearnedIvfRouter(vector_NM.shape[1], L, 0)
    router.begin(vector_NM[:L])
    router.cells.border.fill_(0.2)
    return router


ROUTERS = {"ehi": _ehi, "learned_ivf": _learned_ivf}


@pytest.fixture(scope="session")
def published(tmp_path_factory, tiny_model):
    """Not to be changed by a test."""
    return make_published(tmp_path_factory.mktemp("served"), tiny_model)


@pytest.fixture
def work(published, tmp_path):
    """A copy that a test may change, without the pins of servers that have the first one open."""
    return Path(shutil.copytree(published, tmp_path / "work", ignore=shutil.ignore_patterns(pins.PINS)))


@pytest.fixture
def open_server(work, tmp_path):
    """`open_server()`: a server of that copy, which writes unless its kind is `Reads`."""
    servers = []

    def opened(kind=Server, **args):
        servers.append(kind(work, tmp_path, **args))
        return servers[-1]

    yield opened
    for server in servers:
        server.close()


@pytest.fixture
def server(open_server):
    return open_server(shard_groups=2)


@pytest.fixture(scope="session")
def canned():
    """An engine that is a list of canned answers, its view, and a client of the HTTP application over it."""
    engine = Canned()
    client = TestClient(app_of(engine), raise_server_exceptions=False)
    return engine, engine.view, client


@pytest.fixture
def engine(canned):
    """That engine, which was asked nothing yet."""
    engine, engine.view, _ = canned
    engine.begin()
    return engine


@pytest.fixture
def held(tmp_path):
    """The tokens of a server whose file holds `TOKEN`."""
    (tmp_path / "token").write_text(TOKEN)
    return Tokens(str(tmp_path / "token"))


@pytest.fixture
def client(canned, engine):
    """A client of the HTTP application over that engine."""
    return canned[2]
