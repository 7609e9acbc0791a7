"""BM25 fused with the leaf scan, against both over all documents by plain loops."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.words.bm25 import Bm25Index
from rayhier.search.words.exact_hybrid import ExactHybrid
from rayhier.search.words.hybrid import RANKS, WordScan, compared, fused
from rayhier.spec.search import UNTAUGHT_WEIGHT, HybridSpec, SearchSpec

N, LEAVES, Q = 60, 6, 4


def result(n, passages):
    return f"p{n // 3}" if passages else f"d{n}"


def opened(leaf_map, leaves=None):
    """BM25 over a leaf map, or a range of its leaves."""
    return WordScan.mapped(leaf_map, LeafScan.mapped(leaf_map, leaves))


def best(scores, passages, shown=lambda n: True):
    """Best score of each result by its documents' scores, those that are shown and above 0."""
    found = {}
    for n, score in enumerate(scores):
        if shown(n) and score > 0:
            name = result(n, passages)
            found[name] = max(found.get(name, 0), score)
    return found


def ordered(found):
    return sorted(found, key=lambda name: (-np.float32(found[name]), name))


@pytest.mark.parametrize("is_filtered", [False, True])
def test_exact_hybrid_is_a_loop_over_the_documents_that_match(world, passages, is_filtered):
    _, vector_NM, texts, query_QM, queries = world
    match_N = np.arange(N) % 5 != 0 if is_filtered else None
    ids, results = pa.array([f"d{n}" for n in range(N)]), pa.array([result(n, passages) for n in range(N)])
    words = Bm25Index(texts)
    ranking = ExactHybrid(words, vector_NM, ids, results, match_N).rank(queries, query_QM, N, HybridSpec(weight=0.3))
    for query, text in enumerate(queries):
        scores, expected = words.scores(text), dict[str, float]()
        lexical = best(scores, passages, lambda n: match_N is None or match_N[n])
        for n in range(N) if match_N is None else np.flatnonzero(match_N).tolist():
            name = result(n, passages)
            expected[name] = max(expected.get(name, -9), float(vector_NM[n] @ query_QM[query]))
        most = max(lexical.values(), default=1)
        expected = {name: base + 0.3 * lexical.get(name, 0) / most for name, base in expected.items()}
        rows = ranking.row_QK[query][ranking.row_QK[query] >= 0]
        assert set(ranking.ids[rows]) == set(expected)
        np.testing.assert_allclose(ranking.score_QK[query, : len(rows)], sorted(expected.values())[::-1], atol=1e-5)


@pytest.mark.parametrize("fusion", [HybridSpec(weight=0.3), HybridSpec(fuse="rank")], ids=["sum", "rank"])
def test_fused_is_a_loop_over_all_documents(world, passages, fusion):
    leaf_map, vector_NM, texts, query_QM, queries = world
    leaves = LeafScan.mapped(leaf_map)
    every_QB = np.tile(np.arange(LEAVES), (Q, 1))
    dense = leaves.scan(query_QM, every_QB, N)
    ranking = fused(dense, [opened(leaf_map).scan(queries, query_QM, N)], 10, fusion)
    plain, numbers = Bm25Index(texts), range(N)
    for query, text in enumerate(queries):
        words, bases = best(plain.scores(text), passages), {}
        for n in numbers:
            name = result(n, passages)
            bases[name] = max(bases.get(name, -9), float(vector_NM[n] @ query_QM[query]))
        if fusion.fuse == "sum":
            most = max(words.values(), default=1)
            expected = {name: base + 0.3 * words.get(name, 0) / most for name, base in bases.items()}
        else:
            by_base, by_words = ordered(bases), ordered(words)
            expected = {name: 1 / (RANKS + 1 + by_base.index(name)) for name in bases}
            for place, name in enumerate(by_words, start=1):
                expected[name] += 1 / (RANKS + place)
        names = ranking.ids[ranking.row_QK[query]].tolist()
        np.testing.assert_allclose(ranking.score_QK[query], sorted(expected.values(), reverse=True)[:10], atol=2e-3)
        if fusion.fuse == "sum":
            np.testing.assert_allclose(ranking.score_QK[query], [expected[name] for name in names], atol=1e-4)
        assert len(set(names)) == 10
    np.testing.assert_array_equal(ranking.visited_Q, dense.visited_Q)


def test_documents_of_words_count_as_visited_once(world):
    """Those in a leaf that the search by vectors visited, their first or second, were compared already."""
    leaf_map, _, _, query_QM, queries = world
    leaves_QB = np.array([[0, 1], [2, -1], [4, 5], [3, 0]])
    parts = [opened(leaf_map, part).scan(queries, query_QM, N) for part in (range(3), range(3, 6))]
    table = leaf_map.read(leaf_map.manifest.shards[0]), leaf_map.read(leaf_map.manifest.shards[1])
    leaves_of = {row["text"]: row["leaves"] for part in table for row in part.to_pylist()}
    for query, far in enumerate(compared(parts, leaves_QB)):
        found = [
            part.documents["text"][row].as_py() for part in parts for row in part.row_QK[query].tolist() if row >= 0
        ]
        assert far == sum(not {*leaves_of[text]} & {*leaves_QB[query].tolist()} for text in found)


def test_a_weight_of_other_scores_is_a_share_of_their_spread(world, passages):
    """An inner product's factor, and a constant that is added to all, change no order."""
    leaf_map, _, _, query_QM, queries = world
    dense = LeafScan.mapped(leaf_map).scan(query_QM, np.tile(np.arange(LEAVES), (Q, 1)), 20)
    parts = [opened(leaf_map).scan(queries, query_QM, 20)]
    ranking = fused(dense, parts, 10, HybridSpec(weight=0.5), 20, cosines=False)
    larger = replace(dense, score_QK=dense.score_QK * 1000 - 700)
    others = [replace(part, base_QK=part.base_QK * 1000 - 700) for part in parts]
    many = fused(larger, others, 10, HybridSpec(weight=0.5), 20, cosines=False)
    np.testing.assert_allclose(many.score_QK, ranking.score_QK * 1000 - 700, rtol=1e-4, atol=1e-3)
    assert not np.allclose(fused(dense, parts, 10, HybridSpec(weight=0.5), 20).score_QK, ranking.score_QK, rtol=1e-3)


@pytest.mark.parametrize(
    ("search", "weight", "words", "mode", "chosen"),
    [
        ({}, 0.05, True, "hybrid", 0.05),
        ({}, 0.0, True, "dense", 0.0),
        ({}, 0.05, False, "dense", UNTAUGHT_WEIGHT),
        ({"mode": "hybrid"}, 0.0, True, "hybrid", 0.0),
        ({"hybrid": {"weight": 0.4}}, 0.05, True, "hybrid", 0.4),
        ({"hybrid": {"fuse": "rank"}}, 0.0, True, "hybrid", UNTAUGHT_WEIGHT),
    ],
)
def test_mode_and_weight_are_settled(search, weight, words, mode, chosen):
    settled = SearchSpec.model_validate(search).settled(weight, words=words)
    assert (settled.mode, settled.hybrid.chosen) == (mode, chosen)
