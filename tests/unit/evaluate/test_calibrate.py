"""Calibration of an index: the exact best documents over shards, and how far a query goes until it finds them."""

import shutil

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.dataset.queries import Queries
from rayhier.embed.export import export
from rayhier.embed.onnx import FOLDER, MODELS
from rayhier.evaluate.calibrate import choose_precision, documents_as_queries, exact_best, leaves_of, positions
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import opened
from rayhier.search.routing.routes import Model, search_encoder
from rayhier.storage import columns, schemas
from rayhier.storage.leaf_map import LeafMap

from ...toys import job, tiny_bert
from ..search.maps import leaf_rows

N, M, L, Q, K = 90, 8, 7, 12, 6


@pytest.fixture
def placed():
    """Leaves of every document; of a third the second one is another."""
    leaf_NR = np.random.default_rng(5).integers(0, L, (N, 2))
    leaf_NR[:, 1] = np.where(np.arange(N) % 3 > 0, leaf_NR[:, 0], (leaf_NR[:, 0] + 1 + leaf_NR[:, 1] % (L - 1)) % L)
    return leaf_NR


@pytest.fixture
def leaf_map(tmp_path, write_map, vectors, placed):
    leaves = [list(dict.fromkeys(own)) for own in placed.tolist()]
    rows = [(document, leaf, rank, own) for document, own in enumerate(leaves) for rank, leaf in enumerate(own)]
    document_X, leaf_X, rank_X, leaves_X = zip(*sorted(rows, key=lambda row: row[1]), strict=True)
    names = [f"d{document:02d}" for document in document_X]
    vector_XM = columns.vector_column(vectors[list(document_X)], pa.float32())
    filled = [names, leaf_X, rank_X, leaves_X, np.zeros(len(rows), np.float32), vector_XM, names, names]
    table = pa.table(filled, schema=schemas.leaf_map(M, "float32"))
    write_map(tmp_path, table, L, 3, leaves_per_document=2)
    return LeafMap.open(tmp_path)


@pytest.fixture
def model(vectors):
    router = LearnedIvfRouter(M, L, 0)
    router.begin(torch.from_numpy(vectors[:L]))
    return Model(opened(router), None, job())


def test_positions_are_those_of_the_first_leaf_of_each_of_the_exact_best(leaf_map, model, vectors, placed):
    query_QM = vectors[:Q] + 0.05
    assert len(leaf_map.manifest.shards) == 3
    leaf_QKR = leaves_of(exact_best(leaf_map, query_QM, K))
    best_QK = np.argsort(-(query_QM @ vectors.T), axis=1)[:, :K]
    assert [[set(pair) for pair in row] for row in leaf_QKR.tolist()] == [
        [set(placed[document].tolist()) for document in row] for row in best_QK
    ]
    order_QL = np.argsort(-(query_QM @ model.router.W.T), axis=1)
    wanted = [
        [min(1 + order_QL[q].tolist().index(leaf) for leaf in placed[document]) for document in best_QK[q]]
        for q in range(Q)
    ]
    assert positions(model, Encoded(query_QM), leaf_QKR).tolist() == wanted
    assert leaves_of(exact_best(leaf_map, query_QM, 3 * N)).shape == (Q, N, 2), "fewer documents than results"


def test_documents_are_queries_that_do_not_find_themselves(leaf_map, model, vectors):
    ids, encoded, best = documents_as_queries(model, leaf_map, K)
    row_of = [int(name[1:]) for name in ids]
    assert sorted(row_of) == list(range(N))
    np.testing.assert_array_equal(encoded.numpy, vectors[row_of])
    similarity = vectors @ vectors.T - 9 * np.eye(N)
    for row, found_K in zip(row_of, best.ids[best.row_QK].tolist(), strict=True):
        assert found_K == [f"d{other:02d}" for other in np.argsort(-similarity[row])[:K]]


@pytest.mark.parametrize(("weights", "chosen"), [(0, "int8"), (1, "float32")])
def test_queries_are_in_int8_unless_dev_queries_lose(weights, chosen, tmp_path, write_map):
    """Queries are the documents' texts. The int8 file is the encoder's own, or has other weights."""
    words = [f"{first}{second}" for first in "abcdef" for second in "ghijkl"]
    names, folder = [f"d{word}" for word in words], tiny_bert(tmp_path / "encoder", words)
    for encoder in (folder, tiny_bert(tmp_path / "other", words, weights)):
        export(encoder)
    shutil.copyfile(tmp_path / "other" / FOLDER / MODELS["int8"], folder / FOLDER / MODELS["int8"])
    spec = job()
    vector_NM = search_encoder(folder, spec.encoder).encode(words)
    write_map(tmp_path / "map", leaf_rows([[0]] * len(words), vector_NM, doc_id=names, text=words), L, 2)
    dev = Queries(words, vector_NM, {word: {name: 1} for word, name in zip(words, names, strict=True)}, words)
    model = Model(opened(LearnedIvfRouter(32, L, 0)), lambda: search_encoder(folder, spec.encoder), spec)
    found = choose_precision(dev, model, folder, LeafMap.open(tmp_path / "map"))
    assert (found.chosen, found.queries, found.measured["float32"]) == (chosen, 36, 1.0)
    assert (found.measured["int8"] < 0.9) == (chosen == "float32")
    assert choose_precision(dev.some(np.arange(36) < 19), model, folder, LeafMap.open(tmp_path / "map")) is None
