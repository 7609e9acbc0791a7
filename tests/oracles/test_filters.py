"""Filtered scans against exact search over the matching documents alone, written out by hand."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import opened
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import JobSpec
from rayhier.spec.filter import OneOf, parse
from rayhier.spec.search import FEWEST_LISTED
from rayhier.storage import schemas
from rayhier.storage.leaf_map import LeafMap

from ..draws import to_unit, unit

N, M, L, Q, K, SHARDS = 6000, 32, 24, 20, 10, 3
FIELDS = {"n": "int", "even": "bool", "letter": "string"}
LEAST = {"name": "t", "workdir": "w", "corpus": {"type": "python_docs"}, "encoder": {"model": "package:none"}}
FOUND = 0.95
"""Least share of the ten best that codes keep, with random directions: the hardest there are to code."""
FILTERS = {
    "half": ({"even": True}, lambda n, even, letter: even),
    "a tenth": ({"n": {"gte": 600, "lt": 1200}}, lambda n, even, letter: 600 <= n < 1200),
    "a hundredth": (
        {"letter": {"in": ["a", "b"]}, "n": {"lt": 600}},
        lambda n, even, letter: letter in ("a", "b") and n < 600,
    ),
    "fewer than k": ({"n": {"in": [5, 17, 4000]}}, lambda n, even, letter: n in (5, 17, 4000)),
    "none": ({"n": {"in": [-1]}}, lambda n, even, letter: False),
    "not": (
        {"not": {"or": [{"even": True}, {"letter": {"exists": False}}]}},
        lambda n, even, letter: not (even or letter is None),
    ),
}
"""Filters, and the same in plain Python."""
EVERY = np.tile(np.arange(L), (Q, 1))


def fields(n):
    """What a document's fields hold; a quarter has no letter."""
    return {"n": n, "even": n % 2 == 0, "letter": None if n % 4 == 3 else "abcdefghijkl"[n % 12]}


def documents(ids, numbers, parents=None):
    """Documents, or passages of `parents`, whose fields are those of numbers."""
    held = {name: [fields(n)[name] for n in numbers] for name in FIELDS}
    schema = schemas.documents(FIELDS, passages=parents is not None)
    return pa.table([ids, ids, ids, *([] if parents is None else [parents]), *held.values()], schema=schema)


@pytest.fixture(scope="module")
def vectors():
    return unit(0, N, M).astype(np.float16).astype(np.float32)


@pytest.fixture(scope="module")
def assign():
    """Places documents in one leaf or two; knows nothing of the last leaf."""
    router = LearnedIvfRouter(M, L - 1, 0)
    router.begin(torch.from_numpy(unit(1, L - 1, M)))
    router.cells.border.fill_(0.1)
    spec = JobSpec.model_validate({**LEAST, "router": {"type": "learned_ivf"}, "index": {"leaves_per_document": 2}})
    return Assigner(opened(router), spec)


@pytest.fixture(scope="module")
def table(assign, vectors):
    made = assign(documents([f"d{n:04d}" for n in range(N)], range(N)), Encoded(vectors))
    assert made.num_rows > 1.2 * N, "many documents lie in two leaves"
    return made


@pytest.fixture
def root(table, tmp_path, write_map, monkeypatch):
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    manifest = write_map(tmp_path / "map", table, L, SHARDS, leaves_per_document=2)
    assert manifest.counts[-1] == 0, "the last leaf is empty"
    return tmp_path / "map"


def ids(ranking):
    return [[str(ranking.ids[row]) for row in rows if row >= 0] for rows in ranking.row_QK]


@pytest.mark.parametrize("listed", [None, lambda _: N], ids=["codes first", "all by their vectors"])
@pytest.mark.parametrize("name", FILTERS)
def test_all_leaves_are_an_exact_search_of_what_matches(root, vectors, name, listed):
    given, holds = FILTERS[name]
    queries, where = unit(2, Q, M), parse(given, FIELDS)
    found = LeafScan.mapped(LeafMap.open(root), listed=listed).scan(queries, EVERY, K, where)
    members = [n for n in range(N) if holds(**fields(n))]
    right, most = 0, min(K, len(members))
    for own, scores, query in zip(ids(found), found.score_QK, queries, strict=True):
        score_N = vectors[members] @ query
        order = np.argsort(-score_N, kind="stable")[:K]
        rows = np.array(members, int)[order].tolist()
        assert {int(one[1:]) for one in own} <= set(members)
        assert len(own) == len(set(own)) == most
        right += len({int(one[1:]) for one in own} & set(rows))
        if listed is not None or len(members) <= FEWEST_LISTED["leaves"]:
            assert [int(one[1:]) for one in own] == rows
            np.testing.assert_allclose(scores[:most], score_N[order], atol=1e-5)
    assert right >= FOUND * Q * most
    assert set(found.visited_Q.tolist()) == set(found.scanned_Q.tolist()) == {len(members)}


@pytest.mark.parametrize("name", FILTERS)
def test_queries_together_find_what_each_finds_alone(root, name):
    queries, where = unit(9, Q, M), parse(FILTERS[name][0], FIELDS)
    probed = np.random.default_rng(2).permuted(EVERY, axis=1)[:, :7]
    probed[::9, 3:] = -1
    leaves = LeafScan.mapped(LeafMap.open(root))
    together = leaves.scan(queries, probed, K, where)
    alone = [leaves.scan(queries[[query]], probed[[query]], K, where) for query in range(Q)]
    assert ids(together) == [own for one in alone for own in ids(one)]
    np.testing.assert_allclose(together.score_QK, np.concatenate([one.score_QK for one in alone]), atol=1e-6)
    assert together.visited_Q.tolist() == [int(one.visited_Q[0]) for one in alone]


PARENTS, PASSAGES = 60, 100


@pytest.mark.parametrize("listed", [None, lambda _: N], ids=["codes first", "all by their vectors"])
@pytest.mark.parametrize("where", [None, OneOf("even", (False,))])
def test_passages_of_matching_documents(assign, vectors, tmp_path, write_map, monkeypatch, listed, where):
    """Passages of few documents, also of some that do not match, crowd the best: k documents that match come."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    queries, numbers = unit(2, Q, M), np.repeat(np.arange(PARENTS), PASSAGES)
    near = vectors.copy()
    near[: 5 * PASSAGES] += 0.8 * queries[0]
    near = to_unit(near).astype(np.float16).astype(np.float32)
    own = [f"D{n:02d}#{place % PASSAGES}" for place, n in enumerate(numbers)]
    made = documents(own, numbers.tolist(), [f"D{n:02d}" for n in numbers])
    write_map(tmp_path / "map", assign(made, Encoded(near)), L, 12, leaves_per_document=2)
    found = LeafScan.mapped(LeafMap.open(tmp_path / "map"), listed=listed).scan(queries, EVERY, K, where)
    matching = range(PARENTS) if where is None else range(1, PARENTS, 2)
    best_QD = (queries @ near.T).reshape(Q, PARENTS, PASSAGES).max(axis=2)
    for query in range(Q):
        documents_found = [int(one[1:]) for one in ids(found)[query]]
        assert len(set(documents_found)) == len(documents_found) == K
        assert set(documents_found) <= set(matching)
        # Each is found by its best passage, also where codes lose precision.
        np.testing.assert_allclose(found.score_QK[query], best_QD[query, documents_found], atol=1e-5)
        if listed is not None:
            np.testing.assert_allclose(found.score_QK[query], -np.sort(-best_QD[query, matching])[:K], atol=1e-5)
    assert set(found.visited_Q.tolist()) == {len(matching) * PASSAGES}
