"""Re-ranking over a leaf map, by a scorer that is a table: pools, budgets, factors, and rows that are whole."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rayhier.scores.factors import CONFIG, ITEMS, Factors, Learned
from rayhier.search.rerank import Anchors, Reranker
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import InputError
from rayhier.spec.search import Rerank
from rayhier.storage import columns, files

from ...toys import artifact

N, M, LEAVES = 60, 8, 6
SCORES = np.random.default_rng(5).normal(size=N)


def read(_, texts):
    """Scores of documents, which their texts name."""
    return SCORES[[int(text.split()[1].removeprefix("d")) for text in texts]]


@pytest.fixture
def world(world):
    """Leaf map, vectors, and vectors of three queries."""
    leaf_map, vector_NM, _, query_QM, _ = world
    return leaf_map, vector_NM, query_QM[:3]


def found(world, k=N, leaves=range(LEAVES)):
    leaf_map, _, query_QM = world
    leaves_QB = np.tile(np.array(leaves), (len(query_QM), 1))
    return LeafScan.mapped(leaf_map).scan(query_QM, leaves_QB, k, needs="vectors")


def reranked(spec, world, texts=("a", "b", "c"), k=N, **own):
    ranking = found(world)
    return ranking, Reranker(spec, own.pop("read", read), **own)(texts, world[2], ranking, k)


SPECS = {
    "rnr": Rerank(type="rnr", budget=10),
    "ridge": Rerank(type="axn", budget=10, rounds=2),
    "lstsq": Rerank(type="axn", budget=10, rounds=2, fit="lstsq", lam=0.3),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("by_score", [False, True])
def test_each_pair_is_read_once_and_the_read_come_first(spec, by_score, world, passages):
    """The base score is the vectors' product, or the search's score, which is ten times as large here."""
    seen, before = [], found(world)
    before = replace(before, score_QK=10 * before.score_QK)

    def counted(queries, texts):
        seen.extend(zip(queries, texts, strict=True))
        return read(queries, texts)

    after = Reranker(spec, counted, base_weight=0.5)(tuple("abc"), world[2], before, N, by_score=by_score)
    assert len(seen) == len(set(seen)) == 30
    assert after.calls_Q.tolist() == [10] * 3
    assert "doc_id" not in after.documents.column_names
    for query, name in enumerate("abc"):
        there = before.row_QK[query] >= 0
        score_K = before.score_QK[query][there] / (1 if by_score else 10)
        base = dict(zip(before.ids[before.row_QK[query][there]], score_K, strict=True))
        rows = after.row_QK[query][after.row_QK[query] >= 0]
        ids, scores = after.ids[rows].tolist(), after.score_QK[query][: len(rows)]
        assert sorted(ids) == sorted(base)
        assert (np.diff(scores) <= 1e-6).all()
        numbers = [int(text.split()[1].removeprefix("d")) for asked, text in seen if asked == name]
        shown = [f"p{n // 3}" if passages else f"d{n}" for n in numbers]
        assert sorted(shown) == sorted(ids[:10])
        expected = sorted((SCORES[n] + 0.5 * base[one] for n, one in zip(numbers, shown, strict=True)), reverse=True)
        np.testing.assert_allclose(scores[:10], expected, atol=1e-5)


@pytest.mark.parametrize("rounds", [1, 3])
def test_documents_outside_the_pool_are_not_read_and_follow_as_they_were_found(world, rounds):
    own = {"budget": 6, "pool": 8}
    spec = Rerank(type="rnr", **own) if rounds == 1 else Rerank(type="axn", rounds=rounds, **own)
    before, after = reranked(spec, world)
    assert after.calls_Q.tolist() == [6] * 3
    for own, rows, scores in zip(before.row_QK, after.row_QK, after.score_QK, strict=True):
        there = rows[rows >= 0]
        assert set(before.ids[own[:8]]) == set(after.ids[there[:8]])
        np.testing.assert_array_equal(before.ids[own[8:][own[8:] >= 0]], after.ids[there[8:]])
        assert (np.diff(scores[: len(there)]) <= 1e-6).all()


def test_a_query_without_documents_is_answered_with_none(world):
    leaf_map, _, query_QM = world
    nothing = LeafScan.mapped(leaf_map).scan(query_QM, np.full((3, 1), -1), 10, needs="vectors")
    after = Reranker(Rerank(type="axn", budget=10), read)(("a", "b", "c"), query_QM, nothing, 5)
    assert (after.row_QK == -1).all()
    assert after.calls_Q.tolist() == [0, 0, 0]


def test_adacur_s_vectors_are_the_anchors_scores(world, tmp_path):
    rng = np.random.default_rng(1)
    anchor_AN = rng.normal(size=(5, N)).astype(np.float32)
    pairs = pa.table(
        {
            "query": [f"q{a}" for a in range(5) for _ in range(N)],
            "item": [f"d{n}" for _ in range(5) for n in range(N)],
            "score": anchor_AN.reshape(-1),
        }
    )
    anchors = Anchors.open(artifact(tmp_path, "scores", {"pairs/0.parquet": pairs}))
    np.testing.assert_allclose(
        anchors.vectors(pa.array(["d3", "new"])), [anchor_AN[:, 3], anchor_AN.mean(axis=1)], atol=1e-6
    )
    spec = Rerank(type="adacur", budget=10, rounds=2)
    _, after = reranked(spec, world, anchors=anchors)
    assert after.calls_Q.tolist() == [10] * 3
    with pytest.raises(ValueError, match="adacur: got no anchors"):
        reranked(spec, world)


def learned(tmp_path, **own):
    vectors = columns.vector_column(np.eye(M, dtype=np.float32)[:2], pa.float32())
    table = pa.table({"doc_id": ["d1", "d4"], "bias": [9.0, -3.0], "count": [2, 1], "vector": vectors})
    made = artifact(tmp_path, "factors", {ITEMS: table})
    values = {"model": "m", "slope": 2.0, "alpha": 0.0, "beta": 1.0, "biased": True, **own}
    files.write_json(made.path(CONFIG), Learned(**values).model_dump())
    return made


def test_factors_of_another_model_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"was made for model m, not other\. Run the spec again"):
        Factors.open(learned(tmp_path), "other")


@pytest.mark.parametrize("own", [{"slope": -1.0}, {}], ids=["the factors'", "the dev queries'"])
def test_a_bias_is_beside_the_weighted_base(own, world, tmp_path, monkeypatch):
    """The second round reads what slope · base + bias + weight · base puts first; with the slope alone, the reverse."""
    monkeypatch.setattr("rayhier.search.rerank.PENALTY", 1e6)
    factors, weight = Factors.open(learned(tmp_path, **own), "m"), 3.0
    bias_N = np.zeros(N)
    bias_N[[1, 4]] = 9.0, -3.0
    ranking, query_QM = found(world), world[2]
    stored = columns.matrix(ranking.documents["vector"])
    numbers = [int(name.removeprefix("d")) for name in ranking.documents["doc_id"].to_pylist()]
    base_QD = query_QM @ stored.T
    place = {(name, number): row for name in "abc" for row, number in enumerate(numbers)}

    def as_factors_expect(queries, texts):
        read_as = [(name, int(text.split()[1].removeprefix("d"))) for name, text in zip(queries, texts, strict=True)]
        return np.array([bias_N[n] - base_QD["abc".index(name), place[name, n]] for name, n in read_as])

    spec = Rerank(type="axn", budget=10, rounds=2)
    slope = None if own else -1.0
    reranker = Reranker(spec, as_factors_expect, base_weight=weight, factors=factors, slope=slope)
    after = reranker(("a", "b", "c"), query_QM, ranking, N)
    for query, (own, rows) in enumerate(zip(ranking.row_QK, after.row_QK, strict=True)):
        expected = {row: bias_N[numbers[row]] + (weight - 1) * base_QD[query, row] for row in own[own >= 0].tolist()}
        first = own[:5].tolist()
        second = sorted(set(expected) - set(first), key=lambda row: -expected[row])[:5]
        assert {*rows[:10].tolist()} == {*first, *second}
