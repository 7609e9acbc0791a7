"""A router that reads tokens, from text to leaf, to search and to HTTP: every step hands its tokens on."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from fastapi.testclient import TestClient

from rayhier.embed.encode import TextEncoder
from rayhier.index.assign import Assigner
from rayhier.model.cells import Cells
from rayhier.search.request.model import Model
from rayhier.search.snapshot import Snapshot
from rayhier.spec import JobSpec
from rayhier.storage import schemas
from rayhier.storage.leaf_map import LeafMap

from .conftest import TEXTS, WORDS
from .stand_ins import Here, Near, app_of, engine_of

L = 6


class LateRouter:
    """A leaf scores as much as the token nearest to its centroid: pooled vectors do not tell."""

    levels = 1
    device = torch.device("cpu")

    def __init__(self, centroid_LM):
        self.n_leaves = len(centroid_LM)
        self.cells = Cells(*centroid_LM.shape)
        self.cells.centroid_LM.copy_(centroid_LM)

    def reader(self, token_NTM, mask_NT):
        near_NTL = token_NTM @ self.cells.centroid_LM.T
        return near_NTL.masked_fill(mask_NT[:, :, None] == 0, -torch.inf).amax(dim=1)

    def route(self, encoded, beam):
        log_p_NL, leaf_NL = encoded.token_scores.log_softmax(dim=1).sort(dim=1, descending=True)
        return leaf_NL[:, :beam], log_p_NL[:, :beam]

    place = route

    def multiply_adds(self, beam):
        return self.cells.centroid_LM.numel()


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return TextEncoder(tiny_model, spec(tiny_model).encoder)


@pytest.fixture(scope="module")
def model(tiny_model, encoder):
    """The centroids are token vectors of six words, each alone."""
    words = torch.stack([tokens_of(encoder, word)[1] for word in WORDS[: L * 3 : 3]])
    return Model(LateRouter(words), lambda: encoder, spec(tiny_model))


@pytest.fixture(scope="module")
def leaf_map(tmp_path_factory, model, write_map):
    """The documents assigned as the index stage does: `Model.encode_stored`, which re-encodes, then `Assigner`."""
    root = tmp_path_factory.mktemp("late")
    ids = [f"d{n}" for n in range(len(TEXTS))]
    documents = pa.table([ids, [f"title {n}" for n in ids], TEXTS], schema=schemas.DOCUMENTS)
    unread = np.full((len(TEXTS), 32), np.nan, dtype=np.float32)
    rows = Assigner(model.router, model.spec)(documents, model.encode_stored(unread, lambda: TEXTS))
    write_map(root, rows, L, 2)
    return LeafMap.open(root)


def spec(tiny_model):
    return JobSpec.model_validate(
        {
            "name": "late",
            "workdir": "nowhere",
            "corpus": {"type": "jsonl", "documents": "nowhere.jsonl"},
            "encoder": {"model": str(tiny_model), "max_length": 32, "precision": "float32", "train": "head"},
            "router": {"type": "ehi", "branching": L},
        }
    )


def tokens_of(encoder, text):
    """Vectors of a text's tokens."""
    return encoder.encode_for(lambda token_NTM, _: token_NTM, [text]).token_scores[0]


def by_hand(encoder, router, text):
    """Leaves of one text by itself, unpadded, best first."""
    tokens = tokens_of(encoder, text)
    return (tokens @ router.cells.centroid_LM.T).amax(dim=0).argsort(descending=True).tolist()


def test_a_search_visits_the_leaves_of_the_tokens_and_ranks_by_vectors(searcher, encoder, model):
    answers = searcher.search(TEXTS[:9], k=3, beam=2)
    vectors = encoder.encode(TEXTS)
    placed = np.array([by_hand(encoder, model.router, text)[0] for text in TEXTS])
    for row, answer in enumerate(answers):
        assert answer.leaves == by_hand(encoder, model.router, TEXTS[row])[:2]
        inside = np.flatnonzero(np.isin(placed, answer.leaves))
        best = np.sort(vectors[inside] @ vectors[row])[::-1][:3]
        np.testing.assert_allclose([hit.score for hit in answer.hits], best, atol=1e-3)


@pytest.fixture
def searcher(leaf_map, model):
    return Snapshot(model.spec, leaf_map, model)


@pytest.fixture
def client(searcher):
    engine = engine_of(searcher, [Near("shards-0", range(L), Here(searcher))])
    return TestClient(app_of(engine))


def test_serving_answers_as_the_searcher(client, searcher):
    (whole,) = searcher.search([TEXTS[5]], k=3, beam=2)
    body = client.post("/v1/search", json={"query": TEXTS[5], "k": 3, "beam": 2}).json()
    assert body["visited"]["leaves"] == whole.leaves
    assert [hit["id"] for hit in body["results"]] == [hit.id for hit in whole.hits]
