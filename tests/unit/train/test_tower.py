"""The encoder as what learns: its vectors are the encoding path's, and caching gradients changes none."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.dataset.documents import Texts
from rayhier.dataset.queries import Queries
from rayhier.embed.encode import TextEncoder
from rayhier.spec.encoder import EncoderSpec
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import EhiTraining
from rayhier.train.ehi import Joint
from rayhier.train.examples import Examples
from rayhier.train.tower import TextTower, TokenStore, text_tower

from ...conftest import WORDS
from ...toys import artifact
from .conftest import one_query
from .driver import Driver

N, Q = 40, 24


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice(WORDS, rng.integers(2, 12))) for _ in range(N)]
    return {"document": documents, "query": [text[: len(text) // 2 + 4] for text in documents[:Q]], "dev": ["oak"]}


@pytest.fixture
def build(tiny_model, texts):
    """`build(which, similarity=…, dtype=…, micro_batch=…)`: tower and trainer over the texts."""

    def make(which, similarity="cosine", dtype=torch.float32, micro_batch=None):
        spec = EncoderSpec(model=str(tiny_model), max_length=32, precision="float32", similarity=similarity)
        encoder = TextEncoder(tiny_model, spec)
        stored = {side: encoder.encode(found) for side, found in texts.items()}
        tower = TextTower(
            encoder, which, {side: Texts(pa.chunked_array([found])) for side, found in texts.items()}, dtype
        )
        tower.micro_batch = micro_batch
        examples = Examples(stored["query"], stored["document"], np.stack([np.arange(Q)] * 2, axis=1))
        train = EhiTraining(type="ehi", batch_size=16, epochs=1)
        router = EhiRouting(type="ehi", branching=4)
        return tower, Driver(Joint(tower, examples, router, train, 0, lambda now: one_query(float(now.lists.sizes[0]))))

    return make


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_vectors_with_gradient_are_those_without(build, texts, similarity):
    tower, trainer = build("all", similarity)
    rows = np.array([5, 0, 17, 5])
    vectors = tower.encode("document", rows)
    assert vectors.requires_grad
    torch.testing.assert_close(vectors.detach(), tower.infer("document", rows), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(vectors.detach(), torch.from_numpy(trainer.examples.document_NM[rows]))
    assert tower.encode("query", np.array([], int)).shape == (0, 32)


def test_all_sides_are_tokenised_before_some_workers_read_one(texts, tiny_model, tmp_path, monkeypatch):
    """Workers tokenise together: one that reads alone, as the first does at a tree's start, would wait for ever."""
    rows = pa.table({"doc_id": [str(n) for n in range(N)], "title": [""] * N, "text": texts["document"]})
    corpus = artifact(tmp_path, "corpus", {"documents/a.parquet": rows})
    dev = Queries(["q"], np.zeros((1, 32), np.float32), {"q": {}}, texts["dev"])
    examples = Examples(np.zeros((Q, 32)), np.zeros((N, 32)), np.zeros((0, 2), int), query_texts=texts["query"])
    spec = EncoderSpec(model=str(tiny_model), precision="float32")
    tower = text_tower(spec, tiny_model, corpus, examples, dev)
    monkeypatch.setattr(TokenStore, "of", None)
    for side, found in texts.items():
        assert len(tower.read(side, np.arange(len(found)))[0]) == len(found)


@pytest.mark.parametrize("which", ["last_layer", "all"])
@pytest.mark.parametrize("micro_batch", [1, 7])
def test_cached_gradients_are_the_gradients(build, which, micro_batch):
    found = []
    for size in (None, micro_batch):
        _, trainer = build(which, micro_batch=size)
        hard = np.where(np.arange(16) % 3, np.arange(16, 32), -1)
        losses = trainer.step(np.arange(16), hard)
        found.append((losses.total.item(), [p.grad.clone() for p in trainer.parameters]))
    (whole, wanted), (cached, gradients) = found
    assert cached == pytest.approx(whole, abs=1e-6)
    assert max(gradient.abs().max() for gradient in wanted) > 1e-3
    for gradient, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, other, atol=1e-5, rtol=1e-5)


def test_mixed_precision_keeps_float32_weights(build):
    tower, trainer = build("all", dtype=torch.bfloat16)
    before = {name: value.detach().clone() for name, value in trainer.learned().items()}
    vectors = tower.encode("document", np.arange(6))
    assert vectors.dtype == torch.float32
    exact = torch.from_numpy(trainer.examples.document_NM[:6])
    assert 0 < (vectors.detach() - exact).abs().max() < 0.05
    trainer.step(np.arange(16), np.full(16, -1))
    assert all(value.dtype == torch.float32 for value in trainer.learned().values())
    assert sum(not torch.equal(value, before[name]) for name, value in trainer.learned().items()) > 10
