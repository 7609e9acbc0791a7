"""The encoding path gives what sentence-transformers gives, in folders written by either."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

from rayhier.embed.encode import TextEncoder
from rayhier.model.encoder import ResidualHead, load_head, save_encoder
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_folder import open_model

TEXTS = [
    "",
    "   ",
    "a",
    "How do I read a file line by line?",
    "naïve café — 東京タワー 🙂 Ωμέγα é",
    "tab\tand\nnewline",
    "UPPER lower " * 9,
    "tree " * 126,
    "tree " * 127,
    "unbreakable" * 80,
    " ".join(f"word{number}" for number in range(400)),
    "the quick brown fox jumps over the lazy dog. " * 100,
]


def ours(folder, max_length=128, batch_size=5, precision="float32"):
    spec = EncoderSpec(model=str(folder), max_length=max_length, batch_size=batch_size, precision=precision)
    return TextEncoder(folder, spec)


def theirs(folder, max_length=None):
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    if max_length is not None:
        model.max_seq_length = max_length
    return model


def vectors(model):
    return model.encode(TEXTS, batch_size=4, convert_to_numpy=True, show_progress_bar=False)


@pytest.fixture(scope="module")
def base(minilm):
    return ours(minilm).encode(TEXTS)


@pytest.fixture(scope="module")
def head():
    torch.manual_seed(5)
    head = ResidualHead(384)
    torch.nn.init.normal_(head.weight, std=0.05)
    return head


@pytest.fixture(scope="module")
def trained(minilm, head, tmp_path_factory):
    """A folder with the base encoder and a random head."""
    folder = tmp_path_factory.mktemp("trained")
    save_encoder(minilm, head, 128, folder)
    return folder


def expected(head, base):
    """(I + W) x, then unit length, in float64."""
    mapped = base @ (np.eye(384) + head.weight.detach().double().numpy()).T
    return mapped / np.linalg.norm(mapped, axis=1, keepdims=True)


@pytest.mark.parametrize("max_length", [128, 256])
def test_base_vectors_are_theirs(minilm, max_length):
    assert np.abs(ours(minilm, max_length).encode(TEXTS) - vectors(theirs(minilm, max_length))).max() < 1e-5


def test_the_cut_makes_a_difference(minilm, base):
    assert np.abs(ours(minilm, 256).encode(TEXTS[-1:]) - base[-1:]).max() > 1e-3


def test_a_length_beyond_the_positions_is_cut_to_them(minilm):
    assert np.abs(ours(minilm, 8192).encode(TEXTS[-2:]) - vectors(theirs(minilm, 512))[-2:]).max() < 1e-5


def test_batch_size_and_order_do_not_matter(minilm, base):
    order = np.random.default_rng(0).permutation(len(TEXTS))
    shuffled = ours(minilm, batch_size=64).encode([TEXTS[row] for row in order])
    assert np.abs(shuffled - base[order]).max() < 1e-5
    assert np.abs(ours(minilm, batch_size=1).encode(TEXTS) - base).max() < 1e-5


def test_bfloat16_is_close(minilm, base):
    rough = ours(minilm, precision="bfloat16").encode(TEXTS)
    assert rough.dtype == np.float32
    assert np.abs(rough - base).max() > 1e-6
    assert (rough * base).sum(axis=1).min() > 0.99


def test_their_loader_reads_our_trained_folder(trained, head, base):
    model = theirs(trained)
    assert model.max_seq_length == 128
    assert np.abs(vectors(model) - expected(head, base)).max() < 1e-5


def test_our_loader_reads_our_trained_folder(trained, head, base):
    found = ours(trained).encode(TEXTS)
    assert np.abs(found - expected(head, base)).max() < 1e-5
    assert np.abs(found - base).max() > 1e-2


def test_the_head_alone_is_what_was_saved(trained, head, base):
    loaded = load_head(trained)
    with torch.inference_mode():
        assert np.abs(loaded(torch.from_numpy(base)).numpy() - expected(head, base)).max() < 1e-5


def test_the_base_folder_has_no_head(minilm):
    assert load_head(minilm) is None


def test_a_zero_head_changes_nothing(minilm, base, tmp_path):
    save_encoder(minilm, ResidualHead(384), 128, tmp_path)
    assert np.abs(vectors(theirs(tmp_path)) - base).max() < 1e-5


def test_we_read_the_base_as_they_save_it(minilm, base, tmp_path):
    theirs(minilm, 128).save(str(tmp_path))
    opened = open_model(EncoderSpec(model=str(tmp_path)))
    assert np.abs(ours(opened.path).encode(TEXTS) - base).max() < 1e-5


def test_we_read_a_trained_head_as_they_save_it(minilm, head, base, tmp_path):
    matrix = torch.eye(384) + head.weight.detach()
    dense = Dense(384, 384, bias=False, activation_function=torch.nn.Identity(), init_weight=matrix)
    modules = [Transformer(str(minilm), max_seq_length=128), Pooling(384, "mean"), dense, Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path))
    assert np.abs(ours(tmp_path).encode(TEXTS) - expected(head, base)).max() < 1e-5


def test_no_texts(minilm):
    assert ours(minilm).encode([]).shape == (0, 384)
