"""What benchmarks call right: answers as offline, documented refusals, fusion as in the library; and their numbers."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import statistics
from benchmarks.fusion import listed
from benchmarks.serve import load
from benchmarks.serve.goals import same
from benchmarks.statistics import Curve, Estimate
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.search.segment.exact import exact, exact_rows
from rayhier.search.words.bm25 import Bm25Index
from rayhier.search.words.hybrid import fused
from rayhier.spec.search import HybridSpec

from ..draws import unit
from .serve.sockets import listening

OFFLINE = [("a", 0.9), ("b", 0.5), ("c", 0.5), ("d", 0.3), ("e", 0.3), ("f", 0.1)]
TEXT = 1e-5


@pytest.mark.parametrize(
    ("served", "within", "expected"),
    [
        ([("a", 0.9), ("c", 0.5), ("b", 0.5), ("d", 0.3)], 0.0, True),
        ([("a", 0.9), ("b", 0.5), ("c", 0.5), ("e", 0.3)], 0.0, True),  # tied with the last
        ([("a", 0.9), ("b", 0.5), ("c", 0.5), ("f", 0.3)], TEXT, False),
        ([("b", 0.9), ("a", 0.5), ("c", 0.5), ("d", 0.3)], TEXT, False),
        ([("a", 0.9), ("b", 0.5), ("b", 0.5), ("d", 0.3)], TEXT, False),
        (OFFLINE[:3], TEXT, False),
        (OFFLINE[:5], TEXT, False),
        ([("a", 0.9 + 9e-6), *OFFLINE[1:4]], TEXT, True),
        ([("a", 0.9 + 2e-5), *OFFLINE[1:4]], TEXT, False),
        ([("a", math.nan), *OFFLINE[1:4]], TEXT, False),
    ],
)
def test_answers_as_offline(served, within, expected):
    assert same(served, OFFLINE, 4, within) is expected


def outcome(status, body, headers=()):
    async def app(scope, receive, send):
        await receive()
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
        await send({"type": "http.response.body", "body": body})

    with listening(app) as port:
        (one,) = load.at_a_time(port, "/", [b"{}"], 1).outcomes
    return one


def test_an_answer_is_whole_or_says_what_it_lacks_and_a_refusal_is_documented():
    assert outcome(200, b'{"partial": false, "lost": []}').whole
    assert not outcome(200, b"{").whole
    assert outcome(200, b'{"partial": true, "lost": ["shards-0"]}').lost == ("shards-0",)
    said, retry = b'{"error": {"code": "overloaded", "message": "retry"}}', [(b"retry-after", b"1")]
    assert outcome(503, said, retry).unavailable("overloaded")
    assert not outcome(503, said, retry).unavailable("shards_lost")
    assert not outcome(503, said).unavailable("overloaded")
    assert not outcome(500, said, retry).unavailable("overloaded")


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_fusion_with_many_weights_at_once_finds_what_the_librarys_finds(weight):
    generator, measures = np.random.default_rng(0), ("nDCG@10", "R@100")
    document_NM, query_QM = unit(generator, 400, 16), unit(generator, 40, 16)
    names = generator.permutation([f"d{number}" for number in range(400)]).tolist()
    row_of, ids = {name: row for row, name in enumerate(names)}, pa.array(names)
    texts = [" ".join(f"word{word}" for word in generator.integers(0, 60, 12)) for _ in names]
    asked = [" ".join(f"word{word}" for word in generator.integers(0, 70, 1 + n % 8)) for n in range(40)]
    grades = {f"q{n}": {names[row]: row % 4 for row in generator.integers(0, 400, 30)} for n in range(40)}
    queries = Queries(list(grades), query_QM, grades, ["nothing", *asked[1:]])
    words = Bm25Index(texts).best(queries.texts, 100)
    table = whole_scan(*words, ids, 0)
    tied_QK = np.array([row_of[name] for name in table.ids])[table.row_QK]  # ties go by id there
    base_QK = np.where(table.row_QK >= 0, np.einsum("qm,qkm->qk", query_QM, document_NM[tied_QK]), -np.inf)
    dense = exact(query_QM, document_NM, ids, ids, 100)
    both = fused(dense, [replace(table, base_QK=base_QK.astype(np.float32))], 100, HybridSpec(weight=weight))
    wanted = Judge(queries, measures).values(both)

    order_N = np.argsort(np.argsort(names))
    rows = exact_rows(query_QM, document_NM, None, 100)
    candidates = listed(rows, words, document_NM, queries, row_of, order_N)
    for measure in measures:
        np.testing.assert_allclose(candidates.values(weight)[measure], wanted[measure], atol=1e-9)
    alone = Judge(queries, measures).values(table)["R@100"]
    np.testing.assert_allclose(candidates.bm25()["R@100"], alone, atol=1e-9)


def test_estimates():
    assert Estimate(1.04, -0.2, 2.3).shown == "+1.0 [-0.2, +2.3]"
    assert statistics.estimate(np.array([2.0, 1.0, 3.0])) == Estimate(value=2.0, low=1.05, high=2.95)
    assert statistics.paired(np.array([0.5, 0.75]), np.array([0.25, 0.5])).value == 25.0


def test_curves_are_read_between_their_points():
    recall, visited, cost = (np.array(values)[:, None] for values in ([0.5, 1.0], [0.1, 0.3], [0.2, 0.4]))
    curve = Curve(recall, visited, cost, exact_Q=np.ones(1))
    assert statistics.reached(curve, [0.4, 0.75]).round(3).tolist() == [[0.1, 0.2]]
    assert np.isnan(statistics.reached(curve, [1.1])).all()
    found = statistics.recall_at(curve, [0.05, 0.1, 0.2, 0.4])
    np.testing.assert_allclose(found, [[np.nan, 0.5, 0.75, np.nan]])
    np.testing.assert_allclose(statistics.recall_at(curve, [0.3], "cost"), [[0.75]])
