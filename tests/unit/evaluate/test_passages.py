"""A corpus cut into passages: every system is judged by whole documents, against scans in numpy; no Ray."""

import shutil
from dataclasses import replace
from math import log

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.dataset.documents import load_documents
from rayhier.dataset.holdout import Holdout
from rayhier.evaluate.output import as_markdown
from rayhier.evaluate.report import Report
from rayhier.index.assign import Assigner
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.retreever import RetreeverRouter, at_level
from rayhier.spec import JobSpec
from rayhier.storage import parquet, schemas

from ...draws import unit
from ...toys import artifact, embedded, evaluated, judgements
from .judged import write_model

PARENTS, EACH, Q, M, L = 100, 3, 20, 8, 12
N = PARENTS * EACH
IDS = [f"d{row // EACH:03d}#{row % EACH}" for row in range(N)]
PARENT = [name.partition("#")[0] for name in IDS]
SPEC = {
    "name": "passages",
    "workdir": "work",
    "corpus": {"type": "python_docs"},
    "encoder": {"model": "package:none"},
    "router": {"type": "ehi"},
    "index": {"vectors": "float32"},
    "search": {"k": 10, "beam": 3, "mode": "dense"},
    "evaluate": {
        "measures": ["R@10", "R@100"],
        "lists": 9,
        "baselines": ["exact", "exact_same_encoder", "faiss_ivf", "faiss_ivf_spill", "hnsw", "bm25"],
    },
}


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
    judged = [(f"q{n}", parent, 1) for n in range(Q) for parent in sorted(RELEVANT[n])]
    for split, rows in {"test": judged, "dev": [], "train": []}.items():
        corpus[f"judgements/{split}.parquet"] = judgements(rows)
    router = EhiRouter(M, L, 1, "none")
    router.warm_start(torch.from_numpy(unit(2, L, M)))
    model = write_model(tmp_path_factory.mktemp("model"), router, torch.zeros(M, M))
    _write_index(folders["index"], router, JobSpec.model_validate(SPEC), texts, L, write_map)
    tables = {"corpus": corpus, "vectors": vectors}
    return {name: artifact(folder, name, tables.get(name)) for name, folder in folders.items()} | {"model": model}


def _write_index(folder, router, spec, texts, leaves, write_map):
    documents = pa.table([IDS, IDS, texts, PARENT], schema=schemas.documents({}, passages=True))
    write_map(folder / "a", Assigner(router, spec, "f")(documents, Encoded(VECTORS)), leaves, 4, model="f")


@pytest.fixture(scope="module", params=[1, 3])
def evaluation(published, request):
    one = {0: (published["model"], published["index"])}
    return evaluated(JobSpec.model_validate(SPEC), published["corpus"], published["vectors"], one)


def test_whole_documents_are_found_and_ranked_by_their_best_passage(evaluation):
    assert evaluation.documents == N
    result = evaluation.seeds[0]
    for name, run in result.runs.items():
        found = {document for scores in run.values() for document in scores}
        assert found <= set(PARENT), name
        assert len(found) > Q / 2
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
    parquet.write(corpus.root, "documents/1.parquet", [table.take(list(range(table.num_rows))[::-1])], table.schema)
    with pytest.raises(ValueError, match=r"documents/1\.parquet: not the documents of the vectors artifact"):
        load_documents(corpus, published["vectors"])


def test_documents_know_what_they_are_results_for(published):
    documents = load_documents(published["corpus"], published["vectors"])
    assert (documents.ids, documents.results) == (IDS, PARENT)
    assert documents.result_N.tolist() == [row // EACH for row in range(N)]
    ids, parents = pa.array(documents.ids), pa.array(documents.results)
    held = Holdout.of(ids, parents, documents.vector_NM, 5)
    assert held.results == [name.partition("#")[0] for name in held.ids]


LEVEL, LISTED = 2, 20


@pytest.fixture(scope="module")
def tree(tmp_path_factory, write_map):
    torch.manual_seed(0)
    router = RetreeverRouter(M, 4, "linear", "ancestors", "product", 0.0, "tv")
    router.splits.scale(torch.from_numpy(VECTORS))
    router.eval().requires_grad_(requires_grad=False)
    index, model = tmp_path_factory.mktemp("index"), tmp_path_factory.mktemp("model")
    _write_index(index, router, by_level(), IDS, 16, write_map)
    return write_model(model, router, torch.zeros(M, M)), artifact(index, "index"), router


def by_level():
    search = {"k": 10, "mode": "dense", "how": "level", "level": LEVEL, "shortlist": LISTED}
    measures = {"measures": ["R@10"], "baselines": []}
    router = {"type": "retreever", "depth": 4}
    return JobSpec.model_validate({**SPEC, "router": router, "search": search, "evaluate": measures})


@pytest.mark.parametrize("workers", [1, 5])
def test_a_level_finds_and_costs_the_same_with_any_number_of_workers(published, tree, workers):
    model, index, router = tree
    found = evaluated(by_level(), published["corpus"], published["vectors"], {0: (model, index)})
    (result,), scored = found.seeds, []
    query_QL, document_NL = (router.leaves(Encoded(x)) for x in (QUERIES, VECTORS))
    coarse = -0.5 * np.abs(at_level(query_QL, LEVEL)[:, None] - at_level(document_NL, LEVEL)).sum(axis=2)
    last = QUERIES @ VECTORS.T
    for number in range(Q):
        rows = np.argsort(-coarse[number], kind="stable")
        parents = [PARENT[row] for row in rows]
        end = next(end for end in range(N) if len(set(parents[:end])) == LISTED)
        best = {}
        for row in rows[:end]:
            best[PARENT[row]] = max(best.get(PARENT[row], -np.inf), last[number, row])
        run = result.runs["retreever"][f"q{number}"]
        assert list(run) == sorted(best, key=lambda name: -best[name])[:10]
        assert list(run.values()) == pytest.approx(sorted(best.values(), reverse=True)[:10], abs=1e-6)
        scored.append(end)
    (point,) = result.curves["retreever"]
    assert point.cost_mean * N == pytest.approx(15 + N * 2**LEVEL / M + np.mean(scored))
    assert (point.beam, point.visited_mean) == (LISTED, 1.0)


def test_the_report_says_level_and_shortlist(published, tree):
    spec = by_level()
    found = evaluated(spec, published["corpus"], published["vectors"], {0: tree[:2]})
    report = Report.of(spec, found)
    assert report.level == LEVEL
    assert "## All measures at level 2, shortlist 20\n" in as_markdown(spec, report)
