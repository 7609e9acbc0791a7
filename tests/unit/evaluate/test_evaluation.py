"""The evaluate stage from published artifacts, against numpy scans; no Ray."""

import numpy as np
import pytest

from rayhier.dataset.queries import load_queries
from rayhier.evaluate import evaluation as module
from rayhier.evaluate.evaluation import baselines
from rayhier.evaluate.index_search import IndexSearch
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import open_router
from rayhier.spec import InputError, JobSpec
from rayhier.storage import columns, pins, schemas

from ...toys import artifact, evaluated
from . import judged
from .conftest import row
from .judged import IDS, MEASURES, SPEC, B, M, N, recall, under

texts, heads, vectors, corpus, trained = (
    getattr(judged, name) for name in ("texts", "heads", "vectors", "corpus", "trained")
)


@pytest.fixture(scope="module")
def evaluation(corpus, vectors, trained):
    return evaluated(JobSpec.model_validate(SPEC), corpus, vectors, trained)


def test_curves_pay_for_routing_and_end_at_an_exact_scan_and_rows_stand_where_they_visit_as_much(
    evaluation, trained, texts
):
    documents, queries, relevant = texts
    wanted = {f"R@{k}": recall(documents, queries[:16], relevant[:16], k) for k in (10, 100)}
    assert 0.1 < wanted["R@10"] < 0.9
    ends = {"ehi": "exact_same_encoder", "faiss_ivf": "exact", "faiss_ivf_same_encoder": "exact_same_encoder"}
    for result in evaluation.seeds:
        assert result.rows["exact"] == pytest.approx({**wanted, "visited": 1.0})
        assert set(result.curves) == set(ends)
        for name, exact in ends.items():
            last = result.curves[name][-1]
            assert (last.beam, last.visited_mean) == (B if name == "ehi" else 12, 1.0)
            assert {**last.measures, "visited": 1.0} == pytest.approx(result.rows[exact])
        assert result.curves["ehi"][-1].cost_mean == pytest.approx(1 + (M * M + B * M) / M / N)
        assert result.curves["faiss_ivf"][-1].cost_mean == pytest.approx(1 + 12 / N)
        router = result.curves["ehi"][2]
        assert result.rows["ehi"] == row(router)
        for name in ("faiss_ivf", "faiss_ivf_same_encoder"):
            assert result.rows[name] == next(
                row(p) for p in result.curves[name] if p.visited_mean >= router.visited_mean
            )
        table = columns.read(sorted(trained[result.seed][1].root.glob("data/*.parquet")), ["leaf"])
        assert result.sizes == np.bincount(table["leaf"].to_numpy(), minlength=B).tolist()
        assert len(result.first_Q) == 16
        assert result.balance["imbalance"] == pytest.approx(B * sum(n * n for n in result.sizes) / N**2)


def test_runs_hold_the_documents_behind_the_measures(evaluation, texts):
    for result in evaluation.seeds:
        assert set(result.runs) == set(result.rows)
        for name, run in result.runs.items():
            best = {query: sorted(scores, key=lambda name: -scores[name])[:10] for query, scores in run.items()}
            found = [len({IDS[row] for row in texts[2][n]} & set(best[f"q{n}"])) / 3 for n in range(16)]
            assert np.mean(found) == pytest.approx(result.rows[name]["R@10"]), name


EVERY = ("exact", "exact_same_encoder", "faiss_ivf", "faiss_ivf_same_encoder", "faiss_ivf_spill", "hnsw", "bm25")


def test_the_routers_curve_by_hand(corpus, vectors, trained, texts, heads):
    (result,) = evaluated(only("exact"), corpus, vectors, {0: trained[0]}).seeds
    model, index = trained[0]
    queries = under(heads[0], texts[1][:16])
    table = columns.read(sorted(index.root.glob("data/*.parquet")), ["doc_id", "leaf", "vector"])
    ids, leaf_N, vector_NM = table["doc_id"].to_pylist(), table["leaf"].to_numpy(), columns.matrix(table["vector"])
    for beam in (1, 3, 7):
        leaves = open_router(model.path("router")).choose(Encoded(queries), beam)
        visited, recalls = [], []
        for own, query, relevant in zip(leaves, queries, texts[2], strict=False):
            inside = np.flatnonzero(np.isin(leaf_N, own))
            best = inside[np.argsort(-(vector_NM[inside] @ query))][:10]
            visited.append(len(inside) / N)
            recalls.append(len({ids[row] for row in best} & {IDS[row] for row in relevant}) / 3)
        point = result.curves["ehi"][beam - 1]
        assert point.visited_mean == pytest.approx(np.mean(visited))
        assert point.values["R@10"].tolist() == pytest.approx(recalls)


def test_every_baseline(corpus, vectors, trained):
    spec = JobSpec.model_validate({**SPEC, "evaluate": {**SPEC["evaluate"], "baselines": EVERY}})
    for result in evaluated(spec, corpus, vectors, trained).seeds:
        assert set(result.curves) == {"ehi", *EVERY[2:6]}
        assert set(result.rows) - set(result.curves) == {"exact", "exact_same_encoder", "bm25"}
        assert set(result.seconds) == {"ehi", *EVERY}
        spill = result.curves["faiss_ivf_spill"][-1]
        assert (spill.visited_mean, spill.cost_mean) == (1.0, pytest.approx(2 + 12 / N))
        assert {**spill.measures, "visited": 1.0} == pytest.approx(result.rows["exact_same_encoder"])
        graph = result.curves["hnsw"]
        assert [point.beam for point in graph] == [16, 23, 32, 45, 64, 91, 128, 181, 256, 300]
        assert graph[0].visited_mean < graph[-1].visited_mean <= 1
        assert {**graph[-1].measures, "visited": 1.0} == pytest.approx(result.rows["exact_same_encoder"])
        assert {point.leaves_mean for point in graph} == {0.0}
        # The texts are ids: no query shares a word with a document.
        assert result.rows["bm25"] == {"R@10": 0.0, "R@100": 0.0, "visited": 1.0}


def only(*names):
    return JobSpec.model_validate({**SPEC, "evaluate": {"measures": MEASURES, "baselines": names, "seeds": [0]}})


def test_an_index_is_pinned_as_long_as_it_is_measured(corpus, vectors, trained, monkeypatch):
    root, pinned = trained[0][1].root, []
    scan = IndexSearch.scan
    monkeypatch.setattr(IndexSearch, "scan", lambda *given: pinned.append(pins.held(root)) or scan(*given))
    evaluated(only("exact_same_encoder"), corpus, vectors, {0: trained[0]})
    assert pinned == [{1}] * len(pinned) != []
    assert pins.held(root) == set()


def test_lists_over_trained_vectors_are_tuned_with_trained_queries(corpus, vectors, trained, texts, heads, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "tuned_lists", lambda _, dev, *__: asked.append(dev.vector_QM) or 7)
    evaluated(only("faiss_ivf", "faiss_ivf_same_encoder"), corpus, vectors, {0: trained[0]})
    dev = texts[1][16:]
    np.testing.assert_allclose(asked, [dev, under(heads[0], dev)], atol=1e-6)


def test_new_answers_are_told_from_those_of_train_queries(corpus, vectors, trained, texts, monkeypatch):
    known = {IDS[row] for row in texts[2][3]}
    monkeypatch.setattr(module, "load_answers", lambda _, split: known if split == "train" else set())
    found = evaluated(only("exact"), corpus, vectors, {0: trained[0]}).new_Q
    assert found.tolist() == [not known & {IDS[row] for row in texts[2][query]} for query in range(16)]
    assert not found[3]


def test_queries_that_also_train_are_left_out_of_a_second_measurement(corpus, vectors, trained, texts, monkeypatch):
    """Of 16 queries three train: one by its id, two by their texts."""
    documents, queries, relevant = texts
    read = load_queries(corpus, vectors, "test")
    earlier = {read.ids[0]: "another text", "x": read.texts[3].upper(), "y": f" {read.texts[5]}?"}
    monkeypatch.setattr(module, "load_texts", lambda _, splits: earlier if splits == ["train", "dev"] else {})
    found = evaluated(JobSpec.model_validate(SPEC), corpus, vectors, trained)
    assert found.asked_before == {"queries": 16, "by_id": 1, "by_text": 2}
    place = [int(name.removeprefix("q")) for name in read.ids]
    others = [row for number, row in enumerate(place) if number not in (0, 3, 5)]
    wanted = recall(documents, queries[others], [relevant[row] for row in others], 10)
    for result in found.seeds:
        assert set(result.others) == set(result.runs)
        assert result.others["exact"]["R@10"] == pytest.approx(wanted)


def test_two_leaves_are_measured_beside_the_control_with_two():
    assert baselines(JobSpec.model_validate(SPEC)) == EVERY[:4]
    assert baselines(JobSpec.model_validate({**SPEC, "router": {"type": "learned_ivf"}})) == EVERY[:5]
    assert baselines(JobSpec.model_validate({**SPEC, "index": {"leaves_per_document": 2}})) == EVERY[:5]
    assert baselines(only("faiss_ivf_spill", "exact")) == ("faiss_ivf_spill", "exact")


def test_a_split_without_judgements_is_refused(corpus, vectors, trained, tmp_path):
    judged = {f"judgements/{split}.parquet": schemas.JUDGEMENTS.empty_table() for split in ("test", "dev")}
    bare = artifact(tmp_path, "corpus", {"queries.parquet": schemas.QUERIES.empty_table(), **judged})
    with pytest.raises(InputError, match=r"evaluate\.split: got 'test', which has no judgements"):
        evaluated(JobSpec.model_validate(SPEC), bare, vectors, trained)
