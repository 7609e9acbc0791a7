"""A small corpus with judgements, and what was trained on it, for tests of the evaluate stage."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

from rayhier.index.assign import Assigner
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.encoder import DENSE, ResidualHead
from rayhier.model.opened_router import open_router
from rayhier.model.router import save_router
from rayhier.spec import JobSpec
from rayhier.storage import files, schemas

from ...toys import artifact, embedded, judgements

N, Q, M, B = 300, 24, 8, 20
IDS = [f"d{row:03d}" for row in range(N)]
FILES = {f"documents/{n}.parquet": (60 * n, 60 * n + 60) for n in range(5)}
MEASURES = ("R@10", "R@100")
SPEC = {
    "name": "test",
    "workdir": "work",
    "corpus": {"type": "python_docs"},
    "encoder": {"model": "package:none"},
    "router": {"type": "ehi"},
    "search": {"k": 10, "beam": 3, "mode": "dense"},
    "evaluate": {"measures": MEASURES, "lists": 12, "seeds": [0, 1]},
}


@pytest.fixture(scope="module")
def texts():
    """Document and query vectors, and for each query three relevant documents near it."""
    rng = np.random.default_rng(0)
    documents, queries = (rng.normal(size=(count, M)).astype(np.float32) for count in (N, Q))
    documents, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (documents, queries))
    near = np.argsort(-(queries @ documents.T), axis=1)[:, :30]
    return documents, queries, [rng.choice(rows, 3, replace=False) for rows in near]


def corpus_of(folder, texts, documents, word):
    """Publish documents with 16 test queries, 8 dev queries and no train queries, whose texts begin with a word."""
    tables = {name: documents.slice(begin, end - begin) for name, (begin, end) in FILES.items()}
    asked = [[f"q{n}" for n in range(Q)], [f"{word}{n}" for n in range(Q)]]
    tables["queries.parquet"] = pa.table(asked, schema=schemas.QUERIES)
    for split, rows in {"test": range(16), "dev": range(16, Q), "train": ()}.items():
        judged = [(f"q{n}", IDS[row], 1) for n in rows for row in texts[2][n]]
        tables[f"judgements/{split}.parquet"] = judgements(judged)
    whole = documents["parent" if "parent" in documents.column_names else "doc_id"].unique()
    return artifact(folder, "corpus", tables, documents={"accepted": len(whole)})


@pytest.fixture(scope="module")
def corpus(texts, tmp_path_factory):
    return corpus_of(tmp_path_factory.mktemp("corpus"), texts, pa.table([IDS] * 3, schema=schemas.DOCUMENTS), "q")


@pytest.fixture(scope="module")
def vectors(texts, tmp_path_factory):
    tables = {name: embedded("doc_id", IDS[begin:end], texts[0][begin:end]) for name, (begin, end) in FILES.items()}
    tables["queries.parquet"] = embedded("query_id", [f"q{n}" for n in range(Q)], texts[1])
    return artifact(tmp_path_factory.mktemp("vectors"), "vectors", tables)


@pytest.fixture(scope="module")
def heads():
    torch.manual_seed(0)
    made = []
    for _ in range(2):
        head = ResidualHead(M)
        torch.nn.init.normal_(head.weight, std=0.3)
        made.append(head.requires_grad_(requires_grad=False))
    return made


def write_model(folder, router, weight):
    """Publish a router with the head I + `weight`."""
    model = artifact(folder, "model")
    model.path(f"encoder/{DENSE}").mkdir(parents=True)
    save_file({"linear.weight": torch.eye(M) + weight}, model.path(f"encoder/{DENSE}/model.safetensors"))
    save_router(router, model.path("router"))
    files.write_json(model.path("metrics.json"), {"joint": [{"epoch": 0.0, "dev": 0.5}]})
    return model


@pytest.fixture(scope="module")
def trained(texts, heads, corpus, vectors, tmp_path_factory, write_map):
    made = {}
    for seed, head in enumerate(heads):
        router = EhiRouter(M, B, 1, "relu")
        router.warm_start(head(torch.from_numpy(texts[0][:B])))
        model = write_model(tmp_path_factory.mktemp("model"), router, head.weight)
        index = artifact(tmp_path_factory.mktemp("index"), "index")
        documents = pa.table([IDS, IDS, IDS], schema=schemas.DOCUMENTS)
        trained_NM = under(head, texts[0])
        assign = Assigner(open_router(model.path("router")), JobSpec.model_validate(SPEC))
        write_map(index.root, assign(documents, Encoded(trained_NM)), B, 5, model="f")
        made[seed] = (model, index)
    return made


def recall(documents, queries, relevant, k):
    order = np.argsort(-(queries @ documents.T), axis=1)[:, :k]
    return np.mean([len(set(rows) & set(right)) / len(right) for rows, right in zip(order, relevant, strict=True)])


def under(head, matrix):
    return head(torch.from_numpy(matrix)).numpy()
