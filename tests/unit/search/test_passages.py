"""Documents cut into passages that lie in many shards: k documents, each by its best passage, in every codec."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import InputError, JobSpec
from rayhier.storage import schemas
from rayhier.storage.leaf_map import LeafMap

from .hits import scan

DOCUMENTS, PASSAGES, M, L, SHARDS, Q, K = 60, 100, 32, 16, 12, 4, 10
CODECS = ["flat", "fp16", "pq"]
LEAST = {"name": "t", "workdir": "w", "corpus": {"type": "python_docs"}, "encoder": {"model": "package:none"}}


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def asked():
    return unit(np.random.default_rng(11).normal(size=(Q, M)))


@pytest.fixture(scope="module")
def vectors(asked):
    """Every passage of five documents is about the first query, and something else."""
    vectors = unit(np.random.default_rng(3).normal(size=(DOCUMENTS * PASSAGES, M)))
    vectors[: 5 * PASSAGES] += 0.5 * asked[0]
    return unit(vectors).astype(np.float16).astype(np.float32)


@pytest.fixture
def root(tmp_path, write_map, monkeypatch, vectors):
    """A leaf map of the documents, each in two leaves."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    router = LearnedIvfRouter(M, L, 0)
    router.begin(torch.from_numpy(unit(np.random.default_rng(1).normal(size=(L, M)))))
    router.cells.border.fill_(0.1)
    spec = JobSpec.model_validate({**LEAST, "router": {"type": "learned_ivf"}, "index": {"leaves_per_document": 2}})
    parents = np.repeat([f"D{n:02d}" for n in range(DOCUMENTS)], PASSAGES)
    ids = [f"{parent}#{n % PASSAGES:03d}" for n, parent in enumerate(parents)]
    table = pa.table([ids, ids, ids, parents], schema=schemas.documents({}, passages=True))
    rows = Assigner(router.requires_grad_(requires_grad=False), spec)(table, Encoded.of(vectors))
    write_map(tmp_path / "map", rows, L, SHARDS, leaves_per_document=2)
    return tmp_path / "map"


@pytest.mark.parametrize("codec", CODECS)
def test_as_many_documents_as_are_asked_for(root, vectors, asked, codec):
    every = np.tile(np.arange(L), (Q, 1))
    best_QD = (asked @ vectors.T).reshape(Q, DOCUMENTS, PASSAGES).max(axis=2)
    for query, part in enumerate(scan(LeafScan.mapped(LeafMap.open(root), codec), asked, every, K)):
        assert len({hit.id for hit in part.hits}) == len(part.hits) == K
        assert [hit.score for hit in part.hits] == sorted((hit.score for hit in part.hits), reverse=True)
        found = np.array([best_QD[query, int(hit.id[1:])] for hit in part.hits])
        scores = np.array([hit.score for hit in part.hits])
        assert (scores <= found + 1e-5).all()
        np.testing.assert_allclose(scores, found, atol=1e-5)
        if codec != "pq":
            np.testing.assert_allclose(scores, np.sort(best_QD[query])[::-1][:K], atol=1e-5)


def test_lists_that_cannot_be_written_are_named(root, asked, tmp_path, monkeypatch):
    def full(*_):
        raise RuntimeError("Error in void faiss::write_InvertedLists: write error")

    monkeypatch.setattr("rayhier.search.segment.codecs.faiss.write_index", full)
    with pytest.raises(
        InputError, match=r"lists\.faiss: cannot be written \(.*\); is there space left\?; searches cache"
    ):
        scan(LeafScan.mapped(LeafMap.open(root)), asked, np.zeros((Q, 1), int), K)
    assert not list((tmp_path / "cache").rglob("lists.faiss"))
