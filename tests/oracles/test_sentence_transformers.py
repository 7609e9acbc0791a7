"""The encoding path gives what sentence-transformers gives, in folders written by either."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import BertModel

from rayhier.embed.encode import TextEncoder
from rayhier.embed.export import export
from rayhier.embed.onnx import OnnxEncoder
from rayhier.model.encoder import Encoder, ResidualHead, save_encoder, save_trained, write_prompts
from rayhier.model.layers import load_head
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_folder import open_model

from ..draws import to_unit
from ..toys import tiny_t5

TEXTS = [
    *("", "   ", "a", "How do I read a file line by line?", "naïve café — 東京タワー 🙂 Ωμέγα é", "tab\tand\nnewline"),
    *("UPPER lower " * 9, "tree " * 126, "tree " * 127, "unbreakable" * 80),
    " ".join(f"word{number}" for number in range(400)),
    "the quick brown fox jumps over the lazy dog. " * 100,
]


def ours(folder, max_length=128, precision="float32", similarity="cosine"):
    spec = EncoderSpec(model=str(folder), max_length=max_length, precision=precision, similarity=similarity)
    return Both(folder, spec) if precision == "float32" else TextEncoder(folder, spec)


class Both:
    """An encoder by torch and by ONNX Runtime, which agree."""

    def __init__(self, folder, spec):
        self.by_torch = TextEncoder(folder, spec)
        with tempfile.TemporaryDirectory() as made:
            copy = shutil.copytree(folder, Path(made) / "copy")
            export(copy)
            self.by_onnx = OnnxEncoder(copy, spec, threads=1)

    def encode(self, texts, role="document"):
        vectors = self.by_torch.encode(texts, role)
        assert np.abs(self.by_onnx.encode(texts, role) - vectors).max() < 1e-5
        return vectors


def theirs(folder, max_length=None):
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    if max_length is not None:
        model.max_seq_length = max_length
    return model


def vectors(model, role=None):
    encode = {None: model.encode, "query": model.encode_query, "document": model.encode_document}[role]
    return encode(TEXTS, batch_size=4, convert_to_numpy=True, show_progress_bar=False)


@pytest.fixture(scope="module")
def base(minilm):
    return ours(minilm).encode(TEXTS)


def test_base_vectors_are_theirs(minilm, base):
    """A length beyond the positions is cut to them."""
    assert np.abs(base - vectors(theirs(minilm, 128))).max() < 1e-5
    assert np.abs(ours(minilm, 8192).encode(TEXTS[-2:]) - vectors(theirs(minilm, 512))[-2:]).max() < 1e-5


def test_bfloat16_is_close(minilm, base):
    rough = ours(minilm, precision="bfloat16").encode(TEXTS)
    assert np.abs(rough - base).max() > 1e-6
    assert (rough * base).sum(axis=1).min() > 0.99


IDENTITY = torch.nn.Identity()
MODULES = {
    "mean, normal": lambda: [Pooling(32, "mean"), Normalize()],
    "cls": lambda: [Pooling(32, "cls")],
    "dense with bias, normal": lambda: [Pooling(32, "mean"), Dense(32, 40, activation_function=IDENTITY), Normalize()],
    "tanh": lambda: [Pooling(32, "cls"), Dense(32, 12, bias=False)],
    "gtr": lambda: [Pooling(32, "mean"), Dense(32, 40, bias=False, activation_function=IDENTITY), Normalize()],
    "two": lambda: [Pooling(32, "mean"), Normalize(), Dense(32, 12), Dense(12, 20)],
}


@pytest.fixture(params=MODULES)
def made(request, tiny_model, tmp_path):
    """A folder as they save it, of each kind."""
    torch.manual_seed(1)
    base = tiny_t5(tmp_path / "t5", ["tree", "how", "file"]) if request.param == "gtr" else tiny_model
    modules = [Transformer(str(base), max_seq_length=32), *MODULES[request.param]()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "made"))
    return tmp_path / "made"


def test_vectors_of_every_folder_are_theirs(made):
    wanted = vectors(theirs(made))
    assert open_model(EncoderSpec(model=str(made))).dimension == wanted.shape[1]
    assert np.abs(ours(made, 32, similarity="dot").encode(TEXTS) - wanted).max() < 1e-5
    assert np.abs(ours(made, 32).encode(TEXTS) - to_unit(wanted)).max() < 1e-5


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_a_head_on_every_folder(made, similarity, tmp_path):
    base = ours(made, 32, similarity=similarity).encode(TEXTS)
    head = ResidualHead(base.shape[1], similarity)
    torch.nn.init.normal_(head.weight, std=0.3)
    save_encoder(made, head, 32, tmp_path / "trained")
    wanted = base @ (np.eye(len(head.weight)) + head.weight.detach().double().numpy()).T
    wanted = to_unit(wanted) if similarity == "cosine" else wanted
    model = theirs(tmp_path / "trained")
    assert model.similarity_fn_name == similarity
    assert np.abs(vectors(model) - wanted).max() < 1e-5
    assert np.abs(ours(tmp_path / "trained", 32, similarity=similarity).encode(TEXTS) - wanted).max() < 1e-5
    loaded = load_head(tmp_path / "trained")
    assert np.abs(loaded(base) - wanted).max() < 1e-5
    assert np.abs(wanted - base).max() > 1e-2


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_a_wholly_trained_encoder_on_every_folder(made, similarity, tmp_path):
    encoder = Encoder(made, torch.float32, similarity)
    with torch.no_grad():
        for parameter in encoder.trainable("all"):
            parameter += 0.05 * torch.randn_like(parameter)
    save_trained(encoder, 32, tmp_path / "trained")
    wanted = np.concatenate([one_by_one(encoder, text) for text in TEXTS])
    assert np.abs(vectors(theirs(tmp_path / "trained")) - wanted).max() < 1e-5
    assert np.abs(ours(tmp_path / "trained", 32, similarity=similarity).encode(TEXTS) - wanted).max() < 1e-5
    assert load_head(tmp_path / "trained") is None
    assert np.abs(wanted - ours(made, 32, similarity=similarity).encode(TEXTS)).max() > 1e-2


def one_by_one(encoder, text):
    ids = torch.tensor([encoder.tokenizer(text, truncation=True, max_length=32)["input_ids"]])
    with torch.inference_mode():
        return encoder(ids, torch.ones_like(ids)).numpy()


@pytest.mark.parametrize(
    ("pooling", "prompts"),
    [("cls", {"query": "find tree: "}), ("mean", {"query": "query: ", "document": "passage: "})],
    ids=["bge", "e5"],
)
def test_prompts_put_before_queries_and_before_documents(pooling, prompts, tiny_model, tmp_path):
    """The prompts are those of the folder, or prefixes of the spec. A trained encoder's folder has the prefixes."""
    modules = [Transformer(str(tiny_model), max_seq_length=32), Pooling(32, pooling), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "bare"))
    SentenceTransformer(modules=modules, device="cpu", prompts=prompts).save(str(tmp_path / "made"))
    spec = EncoderSpec(model="bare", max_length=32, precision="float32")
    prefixed = spec.model_copy(update={f"{role}_prefix": text for role, text in prompts.items()})
    save_encoder(tmp_path / "bare", ResidualHead(32), 32, tmp_path / "trained")
    write_prompts(tmp_path / "trained", prefixed)
    for role in ("query", "document"):
        wanted = vectors(theirs(tmp_path / "made"), role)
        assert np.abs(vectors(theirs(tmp_path / "trained"), role) - wanted).max() < 1e-5
        for name, reads in {"made": spec, "trained": spec, "bare": prefixed}.items():
            assert np.abs(Both(tmp_path / name, reads).encode(TEXTS, role) - wanted).max() < 1e-5


def test_a_prompt_put_before_every_text(tiny_model, tmp_path):
    """Older versions of sentence-transformers saved no empty prompts of queries and documents."""
    modules = [Transformer(str(tiny_model), max_seq_length=32), Pooling(32, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "made"))
    prompts = {"prompts": {"every": "find tree: "}, "default_prompt_name": "every"}
    (tmp_path / "made" / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    wanted = vectors(theirs(tmp_path / "made"))
    save_encoder(tmp_path / "made", ResidualHead(32, "dot"), 32, tmp_path / "trained")
    assert np.abs(vectors(theirs(tmp_path / "trained")) - wanted).max() < 1e-5
    for name in ("made", "trained"):
        assert np.abs(ours(tmp_path / name, 32, similarity="dot").encode(TEXTS) - wanted).max() < 1e-5


def test_a_folder_that_lowercases(tiny_model, tmp_path):
    made = tmp_path / "made"
    save_encoder(tiny_model, ResidualHead(32), 32, made)
    config = json.loads((made / "tokenizer_config.json").read_text())
    (made / "tokenizer_config.json").write_text(json.dumps({**config, "do_lower_case": False}))
    texts = ["OAK", "oak", "Bear tree"]
    kept = ours(made, 32).encode(texts)
    assert np.abs(kept[0] - kept[1]).max() > 1e-3
    (made / "sentence_bert_config.json").write_text('{"max_seq_length": 32, "do_lower_case": true}')
    save_encoder(made, ResidualHead(32), 32, tmp_path / "trained")
    for folder in (made, tmp_path / "trained"):
        lowered = ours(folder, 32).encode(texts)
        assert np.abs(lowered[0] - lowered[1]).max() < 1e-6
        assert np.abs(lowered - theirs(folder).encode(texts)).max() < 1e-5


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_shards_are_read_and_kept(tiny_model, similarity, tmp_path):
    BertModel.from_pretrained(tiny_model).save_pretrained(tmp_path / "made", max_shard_size="20KB")
    for file in tiny_model.glob("*token*"):
        shutil.copy(file, tmp_path / "made")
    assert len(list((tmp_path / "made").glob("*.safetensors"))) > 1
    wanted = ours(tiny_model, 32, similarity=similarity).encode(TEXTS)
    opened = open_model(EncoderSpec(model=str(tmp_path / "made")))
    assert np.abs(ours(opened.path, 32, similarity=similarity).encode(TEXTS) - wanted).max() < 1e-6
    save_encoder(opened.path, ResidualHead(32, similarity), 32, tmp_path / "trained")
    assert np.abs(vectors(theirs(tmp_path / "trained")) - wanted).max() < 1e-5
