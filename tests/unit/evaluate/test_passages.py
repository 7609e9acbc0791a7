"""A corpus cut into passages: every system is judged by whole documents, against scans in numpy; no Ray."""

import shutil
from dataclasses import replace
from math import log

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.dataset.documents import load_documents
from rayhier.index.assign import Assigner
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.router import opened
from rayhier.spec import JobSpec
from rayhier.storage import parquet, schemas

from ...draws import unit
from ...toys import artifact, embedded, evaluated, judgements
from . import judged
from .judged import write_model

PARENTS, EACH, Q, M, L = 100, 3, 20, 8, 12
N = PARENTS * EACH
IDS = [f"d{row // EACH:03d}#{row % EACH}" for row in range(N)]
PARENT = [name.partition("#")[0] for name in IDS]
BASELINES = ["exact", "exact_same_encoder", "faiss_ivf", "faiss_ivf_spill", "hnsw", "bm25"]
EVALUATED = {"measures": ["R@10", "R@100"], "lists": 9, "baselines": BASELINES}
SPEC = {**judged.SPEC, "index": {"vectors": "float32"}, "evaluate": EVALUATED}
VECTORS, QUERIES = unit(0, N, M), unit(1, Q, M)
NEAR = [list(dict.fromkeys(PARENT[row] for row in rows)) for rows in np.argsort(-(QUERIES @ VECTORS.T), axis=1)]
RELEVANT = [set(np.random.default_rng(number).choice(near[:20], 4, replace=False)) for number, near in enumerate(NEAR)]


@pytest.fixture(scope="module")
def published(tmp_path_factory, write_map):
    folders = {name: tmp_path_factory.mktemp(name) for name in ("corpus", "vectors", "index")}
    texts = [f"{name} word{row}" for row, name in enumerate(PARENT)]
    documents = pa.table([IDS, IDS, texts], schema=schemas.DOCUMENTS).append_column("parent", pa.array(PARENT))
    asked = [f"q{n}" for n in range(Q)]
    # A question about the last passage of document n, by its own word.
    corpus = {"queries.parquet": pa.table([asked, [f"word{3 * n + 2}" for n in range(Q)]], schema=schemas.QUERIES)}
    vectors = {"queries.parquet": embedded("query_id", asked, QUERIES)}
    for number, rows in enumerate(np.array_split(np.arange(N), [100, 200])):
        name, part = f"documents/{number}.parquet", slice(rows[0], rows[-1] + 1)
        corpus[name], vectors[name] = documents[part], embedded("doc_id", IDS[part], VECTORS[part])
    answers = [(f"q{n}", parent, 1) for n in range(Q) for parent in sorted(RELEVANT[n])]
    for split, rows in {"test": answers, "dev": [], "train": []}.items():
        corpus[f"judgements/{split}.parquet"] = judgements(rows)
    router = EhiRouter(M, L, 1, "none")
    router.warm_start(torch.from_numpy(unit(2, L, M)))
    model = write_model(tmp_path_factory.mktemp("model"), router, torch.zeros(M, M))
    passages = pa.table([IDS, IDS, texts, PARENT], schema=schemas.documents({}, passages=True))
    placed = Assigner(opened(router), JobSpec.model_validate(SPEC), "f")(passages, Encoded(VECTORS))
    write_map(folders["index"] / "a", placed, L, 4, model="f")
    tables = {"corpus": corpus, "vectors": vectors}
    counts = {"documents": {"accepted": PARENTS}}
    return {name: artifact(folder, name, tables.get(name), **counts) for name, folder in folders.items()} | {
        "model": model
    }


@pytest.fixture(scope="module")
def evaluation(published):
    one = {0: (published["model"], published["index"])}
    return evaluated(JobSpec.model_validate(SPEC), published["corpus"], published["vectors"], one)


def test_whole_documents_are_found_and_ranked_by_their_best_passage(evaluation):
    assert (evaluation.documents, evaluation.whole) == (N, len(set(PARENT)))
    result = evaluation.seeds[0]
    for name in ("exact", "exact_same_encoder"):
        for number, near in enumerate(NEAR):
            assert sorted(result.runs[name][f"q{number}"], key=lambda d: -result.runs[name][f"q{number}"][d]) == near
        recall = np.mean([len(set(near[:10]) & right) / 4 for near, right in zip(NEAR, RELEVANT, strict=True)])
        assert result.rows[name]["R@10"] == pytest.approx(recall)


def test_every_curve_ends_at_its_exact_search_and_bm25_names_documents(evaluation):
    result = evaluation.seeds[0]
    for name in ("ehi", "faiss_ivf", "faiss_ivf_spill", "hnsw"):
        assert {**result.curves[name][-1].measures, "visited": 1.0} == pytest.approx(result.rows["exact"])
        assert result.curves[name][0].visited_mean < result.curves[name][-1].visited_mean
    # Every passage has three words; this one is in one of them, once.
    score = pytest.approx(log(1 + (N - 0.5) / 1.5) / 2.5, abs=1e-5)
    assert result.runs["bm25"] == {f"q{n}": {f"d{n:03d}": score} for n in range(Q)}


def test_passages_in_another_order_than_their_vectors_are_refused(published, tmp_path):
    """Each would be found as another's document."""
    corpus = replace(published["corpus"], folder=shutil.copytree(published["corpus"].folder, tmp_path / "corpus"))
    table = parquet.read(corpus.path("documents/1.parquet"))
    backwards = table.take(list(range(table.num_rows))[::-1])
    parquet.write(corpus.root, "documents/1.parquet", [backwards], table.schema)
    with pytest.raises(ValueError, match=r"documents/1\.parquet: not the documents of the vectors artifact"):
        load_documents(corpus, published["vectors"])
