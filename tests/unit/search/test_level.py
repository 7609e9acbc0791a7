"""A search by a level of the tree against brute force over every document."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.retreever import RetreeverRouter
from rayhier.search.comparing import Comparing
from rayhier.search.level import LevelScan
from rayhier.search.scan import LeafScan
from rayhier.spec import InputError, JobSpec
from rayhier.storage import schemas
from rayhier.storage.leaf_map import LeafMap

N, Q, M, D, K = 300, 20, 12, 5, 10


def unit(seed, n):
    x = np.random.default_rng(seed).normal(size=(n, M)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def spec(**search):
    return JobSpec.model_validate(
        {
            "name": "levels",
            "workdir": "nowhere",
            "corpus": {"type": "jsonl", "documents": "nowhere.jsonl"},
            "encoder": {"model": "package:none"},
            "router": {"type": "retreever", "depth": D},
            "search": {"k": K, "how": "level", **search},
        }
    )


def made_router(similarity):
    torch.manual_seed(0)
    router = RetreeverRouter(M, D, "linear", "ancestors", "product", 0.0, similarity)
    router.representations.begin(router.splits.scale(torch.from_numpy(unit(0, N) + 0.1)))
    return router.eval().requires_grad_(requires_grad=False)


@pytest.fixture(scope="module", params=["tv", "cosine"])
def router(request):
    return made_router(request.param)


@pytest.fixture
def there(tmp_path, router, write_map):
    documents = pa.table([[f"d{n:03d}" for n in range(N)], ["t"] * N, ["x"] * N], schema=schemas.DOCUMENTS)
    rows = Assigner(router, spec(), "m")(documents, Encoded.of(unit(0, N)))
    write_map(tmp_path, rows, 2**D, 3)
    return LeafMap.open(tmp_path)


def similarity(router, level, queries, documents):
    """Similarity of every pair at a level, from probabilities in full precision."""
    first, second = (
        router.representations.represent(router.nodes(Encoded.of(one))[level - 1].exp()).double()
        for one in (queries, documents)
    )
    if router.representations.similarity == "tv":
        return -0.5 * (first[:, None] - second[None]).abs().sum(dim=2).numpy()
    return (first @ second.T).numpy()


def ids(ranking):
    return [[str(ranking.ids[row]) for row in rows if row >= 0] for rows in ranking.row_QK]


@pytest.mark.parametrize("finish", ["none", "level", "vectors"])
@pytest.mark.parametrize("level", [2, 4])
def test_level_search_is_brute_force(there, router, level, finish):
    how = Comparing.of(spec(level=level, finish=finish).search, router)
    leaves, queries = LeafScan.mapped(there), unit(1, Q)
    listed = K if finish == "none" else 40
    found = LevelScan.mapped(how, there, leaves, 1e9).scan(how.query(router, Encoded.of(queries)), K, listed)
    coarse = similarity(router, level, queries, unit(0, N))
    finer = {"level": lambda: similarity(router, D, queries, unit(0, N)), "vectors": lambda: queries @ unit(0, N).T}
    last = coarse if finish == "none" else finer[finish]()
    for row in range(Q):
        short = np.argsort(-coarse[row])[:listed]
        wanted = short[np.argsort(-last[row, short])][:K]
        scores = found.score_QK[row]
        np.testing.assert_allclose(scores, last[row, wanted], atol=3e-3)
        # float16 may change the order of near ties.
        gap = [name for name in ids(found)[row] if name not in {f"d{n:03d}" for n in wanted}]
        assert len(gap) <= 1
    assert (found.visited_Q == N).all()
    assert (found.scanned_Q == (0 if finish == "none" else listed)).all()


def test_without_sidecars_or_with_those_of_another_model(tmp_path, there, router, write_map):
    how = Comparing.of(spec().search, router)
    documents = pa.table([["a"], [""], ["x"]], schema=schemas.DOCUMENTS)
    plain = Assigner(router, spec(), "other")(documents, Encoded.of(unit(0, 1)))
    (tmp_path / "other").mkdir()
    write_map(tmp_path / "other", plain, 2**D, 1)
    other = LeafMap.open(tmp_path / "other")
    with pytest.raises(InputError, match=r"nodes\.parquet: was made by model other, not m"):
        LevelScan.mapped(how, other, LeafScan.mapped(other), 1e9)
    (tmp_path / "none").mkdir()
    write_map(tmp_path / "none", plain.drop_columns([schemas.NODES]), 2**D, 1)
    none = LeafMap.open(tmp_path / "none")
    with pytest.raises(InputError, match=r"has no sidecar 'nodes', which levels of a tree are read from"):
        LevelScan.mapped(how, none, LeafScan.mapped(none), 1e9)
