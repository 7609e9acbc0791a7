"""Queries that a model writes: what they depend on, and how they are drawn."""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration, T5ForConditionalGeneration

from rayhier.generate import generator
from rayhier.generate.generator import Drawing, Generator, load, noise
from rayhier.spec import InputError
from rayhier.spec.train import QueryModel

from .conftest import TEXTS

IDS = [f"d{row}" for row in range(len(TEXTS))]
CPU = torch.device("cpu")


@pytest.fixture
def writer(tiny_writer, monkeypatch):
    """`writer(key=value, …)`: a generator of the tiny model with these settings."""
    monkeypatch.setattr(generator, "MOST_WRITTEN", 6)
    return lambda **own: Generator(tiny_writer, QueryModel(type="model", model="tiny", **own), CPU)


def test_a_documents_queries_follow_from_its_id_and_the_seed(writer, monkeypatch):
    one = writer(per_document=3)
    found = one(IDS, TEXTS)
    assert [len(own) for own in found] == [3] * 6
    monkeypatch.setattr(generator, "TOGETHER", 1)
    assert found == one(IDS, TEXTS)
    assert found[::-1] == one(IDS[::-1], TEXTS[::-1])
    assert [own[:1] for own in found] == writer()(IDS, TEXTS)
    assert found != one([f"other{name}" for name in IDS], TEXTS)
    assert all(len(query.split()) <= 6 for own in found for query in own)
    monkeypatch.setattr(generator, "SEED", 1)
    assert found != one(IDS, TEXTS)


def test_the_likeliest_of_one_is_what_the_model_itself_decodes(writer, tiny_writer, monkeypatch):
    """Greedy decoding by transformers, of the document after its prompt, cut to max_length."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_writer)
    model = T5ForConditionalGeneration.from_pretrained(tiny_writer).eval()
    wanted = []
    for text in TEXTS:
        ids = tokenizer("leaf root " + text, return_tensors="pt", truncation=True, max_length=5)
        written = model.generate(**ids, do_sample=False, max_new_tokens=6)
        wanted.append([tokenizer.decode(written[0], skip_special_tokens=True)])
    monkeypatch.setattr(generator, "LIKELIEST", 1)
    monkeypatch.setattr(generator, "MOST_READ", 5)
    assert writer(prompt="leaf root ")(IDS, TEXTS) == wanted
    assert writer()(IDS, TEXTS) != wanted


def test_tokens_are_drawn_as_likely_as_the_model_finds_them():
    """Of four tokens the three likeliest, by their softmax: e^2, e and 1 of their sum."""
    score_RV = torch.tensor([[1.0, -1.0, 2.0, 0.0]]).repeat(20_000, 1)
    noise_RTK = torch.from_numpy(np.stack([noise(0, f"d{row}", 0, (2, 3)) for row in range(20_000)]))
    drawing = Drawing(noise_RTK)
    first, second = (drawing(torch.zeros(0), score_RV).argmax(dim=1) for _ in range(2))
    likely = np.exp([1.0, -np.inf, 2.0, 0.0])
    for drawn in (first, second):
        share = np.bincount(drawn.numpy(), minlength=4) / 20_000
        np.testing.assert_allclose(share, likely / likely.sum(), atol=0.015)
    assert abs(float((first == second).float().mean()) - ((likely / likely.sum()) ** 2).sum()) < 0.015


def test_more_tokens_than_a_model_has_positions_are_not_asked_for(tiny_writer, tmp_path):
    shutil.copytree(tiny_writer, tmp_path, dirs_exist_ok=True)
    shape = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    own = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 8}
    tokens = {"vocab_size": 23, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 0, "decoder_start_token_id": 0}
    BartForConditionalGeneration(BartConfig(**shape, **own, **tokens, forced_eos_token_id=None)).save_pretrained(
        tmp_path
    )
    made = Generator(tmp_path, QueryModel(type="model", model="bart"), CPU)
    (found,) = made(["d"], ["pine oak " * 20])
    assert (made.max_length, made.new_tokens) == (8, 7)
    assert len(found[0].split()) <= 7


def test_a_folder_that_cannot_write_is_refused(tiny_writer, tmp_path):
    shutil.copytree(tiny_writer, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_decoder_layers": 2}))
    with pytest.raises(InputError, match=r"^train\.generated\.model: .* lacks \d+ tensors of its config"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "is_encoder_decoder": True}))
    with pytest.raises(InputError, match=r"^train\.generated\.model: .* cannot be loaded .*; allowed: .* T5 or BART$"):
        load(tmp_path)
