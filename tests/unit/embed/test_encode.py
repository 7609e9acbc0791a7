"""Which text stands for a document, and batches; vectors are in tests/oracles/test_sentence_transformers.py."""

import numpy as np
import pytest

from rayhier.dataset.documents import document_text
from rayhier.embed import encode
from rayhier.embed.encode import TextEncoder
from rayhier.spec.encoder import EncoderSpec


def test_a_document_is_its_title_and_text():
    given = [("Oak", "A tree."), ("", "A tree."), ("Oak", ""), (" Oak", "two\nlines ")]
    assert [document_text(*one) for one in given] == ["Oak A tree.", "A tree.", "Oak", "Oak two\nlines"]


def tiny(tiny_model, **fields):
    return TextEncoder(tiny_model, EncoderSpec(model="tiny", precision="float32", **fields))


@pytest.fixture
def texts():
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(["tree", "oak", "bear", "x1"], size)) for size in generator.integers(0, 30, 50)]


def test_chunks_give_the_vectors_of_all_tokens_together(tiny_model, texts, monkeypatch):
    encoder = tiny(tiny_model, max_length=8)
    tokens, settings = encoder.tokenise(texts), {"truncation": True, "max_length": 8}
    assert [ids.tolist() for ids in tokens] == encoder.encoder.tokenizer(texts, **settings)["input_ids"]
    monkeypatch.setattr(encode, "CHUNK_TEXTS", 7)
    np.testing.assert_array_equal(encoder.read(tokens).numpy, encoder.encode(texts))
    assert encoder.seen == 2 * sum(map(len, tokens))


@pytest.mark.parametrize(("most_texts", "tokens", "most"), [(4, 10_000, 4), (64, 40, 20), (64, 1, 1)])
def test_batches_keep_both_limits(tiny_model, texts, monkeypatch, most_texts, tokens, most):
    encoder = tiny(tiny_model)
    encoder.most = most_texts, tokens
    shapes = []
    hidden = encoder.encoder.hidden
    monkeypatch.setattr(encoder.encoder, "hidden", lambda ids, mask: shapes.append(ids.shape) or hidden(ids, mask))
    encoder.encode(texts)
    assert sum(rows for rows, _ in shapes) == len(texts)
    assert all(rows <= most_texts and (rows == 1 or rows * length <= tokens) for rows, length in shapes)
    assert 1 <= max(rows for rows, _ in shapes) <= most
