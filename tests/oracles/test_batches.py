"""A batch of queries against the same queries one by one: over several files, versions and filters."""

import numpy as np
import pytest
import torch

from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import JobSpec
from rayhier.spec.filter import parse
from rayhier.storage.leaf_map import LeafMap

from ..draws import unit
from .test_filters import FIELDS, LEAST, documents

N, M, L, Q, BEAM, PASSAGES = 4000, 32, 40, 70, 7, 3
FILTERS = {"all": None, "half": {"even": True}, "few": {"n": {"gte": 300, "lt": 340}}}


@pytest.fixture(params=[0, 1], ids=["documents", "passages"], scope="module")
def corpus(request, tmp_path_factory, write_map):
    """A leaf map in five files, of which documents were removed, and to which some were added, in its third version."""
    seed, root = request.param, tmp_path_factory.mktemp("map")
    router = LearnedIvfRouter(M, L, 0)
    router.begin(torch.from_numpy(unit(seed + 1, L, M)))
    router.cells.border.fill_(0.1)
    spec = JobSpec.model_validate({**LEAST, "router": {"type": "learned_ivf"}, "index": {"leaves_per_document": 2}})
    assign = Assigner(router.requires_grad_(requires_grad=False), spec)

    def made(names, numbers):
        if not request.param:
            return documents(names, numbers)
        parents = [f"D{n // PASSAGES}" for n in numbers]
        return documents(
            [f"{parent}#{n % PASSAGES}" for parent, n in zip(parents, numbers, strict=True)], numbers, parents
        )

    names = [f"d{n}" for n in range(N)]
    vectors = unit(seed, N, M).astype(np.float16).astype(np.float32)
    write_map(root, assign(made(names, range(N)), Encoded(vectors)), L, 5, leaves_per_document=2)
    gone = [f"D{n}" for n in range(50)] if request.param else names[:150]
    change.delete(root, gone)
    added = range(2 * N, 2 * N + 90)
    change.add(root, assign, iter([(made([f"d{n}" for n in added], added), Encoded(unit(seed + 5, 90, M)))]), 8.0)
    return LeafMap.open(root)


def answers(ranking):
    return [
        [(str(ranking.ids[row]), float(score)) for row, score in zip(row_K, score_K, strict=True) if row >= 0]
        for row_K, score_K in zip(ranking.row_QK, ranking.score_QK, strict=True)
    ]


def same(together, alone):
    """The same names, scores and costs."""
    for batched, (single,) in zip(answers(together), map(answers, alone), strict=True):
        assert [name for name, _ in batched] == [name for name, _ in single]
        np.testing.assert_allclose([score for _, score in batched], [score for _, score in single], atol=1e-6)
    for cost in ("visited_Q", "scanned_Q", "leaves_Q"):
        assert getattr(together, cost).tolist() == [int(getattr(one, cost)[0]) for one in alone]


@pytest.mark.parametrize("k", [1, 10, 400], ids=lambda k: f"k {k}")
@pytest.mark.parametrize("name", FILTERS)
def test_leaves(corpus, name, k, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path_factory.getbasetemp() / "batches"))
    leaves = LeafScan.mapped(corpus)
    where = None if FILTERS[name] is None else parse(FILTERS[name], FIELDS)
    queries, rng = unit(9, Q, M), np.random.default_rng(2)
    probed = np.stack([rng.permutation(L)[:BEAM] for _ in range(Q)])
    probed[::9, 3:] = -1
    together = leaves.scan(queries, probed, k, where)
    same(together, [leaves.scan(queries[q : q + 1], probed[q : q + 1], k, where) for q in range(Q)])
    assert sum(map(len, answers(together))) > 0
