"""A small model for queries, from the spec to answers."""

import numpy as np
import pytest

import rayhier
from rayhier import run
from rayhier.embed.encode import TextEncoder
from rayhier.spec import InputError, load
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import current

from ..conftest import WORDS
from ..toys import tiny_bert

WIDTH = 16


def test_queries_are_encoded_by_the_small_model_and_documents_by_the_large(tiny_spec, tiny_model, tmp_path, here):
    here()
    small, work = tiny_bert(tmp_path / "small", WORDS, seed=9, width=WIDTH), tmp_path / "work"
    encoder = f"{{model: {small}, documents: {tiny_model}, max_length: 32, precision: float32}}"
    assert run.main([str(tiny_spec(encoder=encoder))]) == 0
    model = current.artifact(work, current.read(work), "model").root
    texts = [f"{WORDS[n % 20]} {WORDS[3 * n % 20]} {WORDS[7 * n % 20]}" for n in range(60)]
    with rayhier.open(work) as index:
        of_queries, of_documents = (index.encode(texts, role=role) for role in ("query", "document"))
        hits = index.search(texts[0], k=240, mode="dense", beam=10_000)
    plain = EncoderSpec(model="package:none", precision="float32")
    for folder, wanted_NM in (("query_encoder", of_queries), ("encoder", of_documents)):
        np.testing.assert_allclose(TextEncoder(model / folder, plain).encode(texts, "query"), wanted_NM, atol=1e-4)
    assert TextEncoder(model / "query_encoder", plain).encoder.layout.width == WIDTH
    cosine_N = np.vecdot(of_queries, of_documents)
    assert 0.8 < cosine_N.mean() < 0.9999
    document_NM = TextEncoder(model / "encoder", plain).encode([f"{hit.title} {hit.text}" for hit in hits], "document")
    np.testing.assert_allclose([hit.score for hit in hits], document_NM @ of_queries[0], atol=1e-3)


def test_a_router_that_reads_tokens_needs_one_encoder(tiny_spec, tiny_model):
    lines = {"encoder": f"{{model: {tiny_model}, documents: {tiny_model}}}", "train": "{type: retreever}"}
    with pytest.raises(InputError, match=r"encoder\.documents: got .*attention.*; allowed: "):
        load(tiny_spec(router="{type: retreever, splits: attention}", **lines))
