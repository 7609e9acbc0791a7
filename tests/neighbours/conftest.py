"""An index without documents, opened here or served, for the tests that other libraries make for their stores."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
import pytest
import yaml

import rayhier
from rayhier.serve.client import Client

from ..conftest import TEXT
from ..integration.in_process import make

FIELDS = {
    "metadata": "string",
    "name": "string",
    "page": "string",
    "chapter": "string",
    "date": "string",
    "category": "string",
    "status": "string",
    "extra_field": "string",
    "number": "int",
    "priority": "int",
    "year": "int",
    "age": "int",
    "rating": "float",
    "no_embedding": "bool",
    "featured": "bool",
    "updated": "bool",
}


def built(folder: Path, tiny_model: Path, stages: Sequence[str] = (), **more: object) -> Path:
    """Workdir of an index of a few documents, with declared fields."""
    words = TEXT.split()
    values = {"string": "{}", "int": 1, "float": 0.5, "bool": True}
    fields = {name: values[kind] for name, kind in FIELDS.items()}
    documents = [{"id": f"d{n}", "text": " ".join(words[n % 7 : n % 7 + 3 + n % 5]), **fields} for n in range(40)]
    (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(document)}\n" for document in documents))
    spec = {
        "name": "neighbours",
        "workdir": str(folder / "work"),
        "corpus": {"type": "jsonl", "documents": str(folder / "corpus.jsonl"), "fields": FIELDS},
        "encoder": {"model": str(tiny_model), "max_length": 32, "precision": "float32"},
        **more,
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    make(folder / "spec.yaml", "corpus", "embed", *stages, "train", "index", "calibrate")
    return folder / "work"


@pytest.fixture(scope="session")
def trained(tmp_path_factory, tiny_model):
    """Workdir of an index. Not to be changed by a test."""
    return built(tmp_path_factory.mktemp("neighbours"), tiny_model)


@pytest.fixture(scope="session")
def reranking(tmp_path_factory, tiny_model):
    """Workdir of an index with a cross-encoder, which is not trained. Not to be changed by a test."""
    reads = {
        "model": str(tiny_model),
        "max_length": 32,
        "precision": "float32",
        "train": None,
        "head": "emb",
        "beside": 0.5,
    }
    search = {"rerank": {"type": "rnr", "budget": 4}, "mode": "dense"}
    folder = tmp_path_factory.mktemp("reranking")
    return built(folder, tiny_model, ["cross_encoder"], cross_encoder=reads, search=search)


@contextlib.contextmanager
def server_of(work: Path, token: Path) -> Iterator[Client]:
    """A server of a workdir, which reads and writes with the token `poppy-1`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token.write_text("poppy-1")
    command = [sys.executable, "-m", "rayhier", "serve", str(work), "--port", str(port)]
    command += ["--write-token-file", str(token), "--set", "limits.queue_seconds=30"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        while True:
            assert server.poll() is None, server.communicate()
            try:
                if httpx2.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            except httpx2.HTTPError:
                time.sleep(0.1)
        with Client(f"http://127.0.0.1:{port}", "poppy-1", timeout=60) as client:
            yield client
        server.terminate()
        server.communicate()


@pytest.fixture(scope="module")
def served(trained, tmp_path_factory):
    """A server of an index, which every test of a module begins with no documents."""
    folder = tmp_path_factory.mktemp("served")
    with server_of(shutil.copytree(trained, folder / "work"), folder / "token") as client:
        yield client


@pytest.fixture(params=["opened", "served"])
def index(request, trained, tmp_path):
    """An index whose documents were all deleted: opened in this process, and on a server."""
    if request.param == "served":
        client: Client = request.getfixturevalue("served")
        if there := [document.id for document in client.documents(limit=1_000).documents]:
            client.delete(there)
        yield client
        return
    with rayhier.open(shutil.copytree(trained, tmp_path / "work")) as opened:
        opened.delete([f"d{n}" for n in range(40)])
        yield opened


@pytest.fixture
def reranks(reranking, tmp_path):
    """A server of an index with a cross-encoder."""
    with server_of(shutil.copytree(reranking, tmp_path / "reranking"), tmp_path / "token") as client:
        yield client
