"""A search by a level of the tree against brute force over every document."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.index.assign import Assigner
from rayhier.index.change import delete
from rayhier.model.encoded import Encoded
from rayhier.model.retreever import RetreeverRouter
from rayhier.model.router import opened
from rayhier.search.segment.flat_scan import FlatScan
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.segment.level_similarity import LevelSimilarity, ranked_again
from rayhier.spec import InputError
from rayhier.spec.filter import OneOf
from rayhier.storage import schemas
from rayhier.storage.leaf_map import LeafMap

from ... import draws
from ...toys import job

N, Q, M, D, K = 300, 20, 12, 5, 10


def unit(seed, n):
    return draws.unit(seed, n, M)


def spec(leaves_per_document=1, **search):
    index = {"leaves_per_document": leaves_per_document}
    return job(router={"type": "retreever", "depth": D}, search={"k": K, "how": "level", **search}, index=index)


def made_router(similarity):
    torch.manual_seed(0)
    router = RetreeverRouter(M, D, "linear", "ancestors", "product", 0.0, similarity)
    router.representations.begin(router.splits.scale(torch.from_numpy(unit(0, N) + 0.1)))
    return router.eval().requires_grad_(requires_grad=False)


@pytest.fixture(scope="module", params=["tv", "cosine"])
def trained(request):
    return made_router(request.param)


@pytest.fixture
def router(trained):
    return opened(trained)


@pytest.fixture(params=[1, 2], ids=["one leaf", "two leaves"])
def there(request, tmp_path, router, write_map):
    """A leaf map of documents in one leaf each, or in two."""
    documents = pa.table([[f"d{n:03d}" for n in range(N)], ["t"] * N, ["x"] * N], schema=schemas.DOCUMENTS)
    rows = Assigner(router, spec(request.param), "m")(documents, Encoded(unit(0, N)))
    write_map(tmp_path, rows, 2**D, 3, leaves_per_document=request.param)
    return LeafMap.open(tmp_path)


def similarity(trained, level, queries, documents):
    """Similarity of every pair at a level, from probabilities in full precision."""
    first, second = (
        trained.representations.represent(trained.representations.tree(torch.from_numpy(one))[level - 1].exp()).double()
        for one in (queries, documents)
    )
    if trained.representations.similarity == "tv":
        return -0.5 * (first[:, None] - second[None]).abs().sum(dim=2).numpy()
    return (first @ second.T).numpy()


def ranked(scan, query, k, listed, where=None):
    """The best k results among the `listed` best by the level's numbers."""
    return ranked_again([scan.shortlist(query, listed, where)], listed, k)


def ids(ranking):
    return [[str(ranking.ids[row]) for row in rows if row >= 0] for rows in ranking.row_QK]


@pytest.mark.parametrize("share", [1, 0.5, 0.01, 0])
def test_a_level_is_brute_force_over_what_matches(there, trained, router, share):
    """The filter is over ids, which lie beside the declared fields. Then rows after a deleted one have moved up."""
    level_similarity, listed, queries = LevelSimilarity.of(spec(level=3).search, router), 40, unit(1, Q)
    query, every = level_similarity.query(router, Encoded(queries)), np.random.default_rng(5).permutation(N)
    for gone in (0, N // 5):
        if gone:
            delete(there.root, [f"d{n:03d}" for n in every[:gone]])
        leaf_map, rows = LeafMap.open(there.root), every[gone:][: int(share * N)]
        where = None if share == 1 else OneOf("doc_id", tuple(f"d{n:03d}" for n in rows))
        found = ranked(FlatScan(level_similarity, leaf_map, LeafScan.mapped(leaf_map), 1e9), query, K, listed, where)
        assert found.visited_Q.tolist() == [len(rows)] * Q
        assert found.scanned_Q.tolist() == [min(len(rows), listed)] * Q
        coarse_QN = similarity(trained, 3, queries, unit(0, N))[:, rows]
        last_QN = queries @ unit(0, N)[rows].T
        for own, coarse, last, scores in zip(ids(found), coarse_QN, last_QN, found.score_QK, strict=True):
            short = np.argsort(-coarse)[:listed]
            best = short[np.argsort(-last[short])][:K]
            assert len(own) == len(set(own)) == len(best)
            np.testing.assert_allclose(scores[: len(best)], last[best], atol=3e-3)
            # float16 may change the order of near ties.
            assert len({*own} - {f"d{n:03d}" for n in rows[best]}) <= 1


def test_sidecars_that_are_missing_or_of_another_model_are_refused(tmp_path, router, write_map):
    level_similarity = LevelSimilarity.of(spec().search, router)
    documents = pa.table([["a"], [""], ["x"]], schema=schemas.DOCUMENTS)
    plain = Assigner(router, spec(), "other")(documents, Encoded(unit(0, 1)))
    for name, rows, said in (
        ("other", plain, r"nodes\.parquet: was made by model other, not m"),
        ("none", plain.drop_columns([schemas.NODES]), r"got no sidecar 'nodes' for levels of a tree"),
    ):
        write_map(tmp_path / name, rows, 2**D, 1)
        there = LeafMap.open(tmp_path / name)
        with pytest.raises(InputError, match=said):
            FlatScan(level_similarity, there, LeafScan.mapped(there), 1e9)
