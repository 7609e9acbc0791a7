"""Encoder folders are found and checked, and nothing of them runs."""

import hashlib
import json
import sys

import huggingface_hub.constants
import pytest
from huggingface_hub.utils import filter_repo_objects

from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_folder import UNWANTED, WANTED, open_model

BUILT_IN = "sentence_transformers.models"
MODULES = [{"path": "", "type": f"{BUILT_IN}.Transformer"}, {"path": "1_Pooling", "type": f"{BUILT_IN}.Pooling"}]

HEADER = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + bytes(4)


def build(folder, config=None, pooling=None, modules=MODULES, weights="model.safetensors"):
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config or {"hidden_size": 8}))
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {"pooling_mode_mean_tokens": True}))
    (folder / weights).write_bytes(WEIGHTS)
    return str(folder)


def module(path, kind):
    return {"path": path, "type": f"{BUILT_IN}.{kind}"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights": "pytorch_model.bin"}, r"holds pytorch_model\.bin, a pickle"),
        ({"weights": "notes.txt"}, r"holds no model\.safetensors"),
        ({"config": {"hidden_size": 8, "auto_map": {"AutoModel": "x.Y"}}}, r"run its own code \(auto_map\)"),
        ({"config": {"layers": 8}}, "not a transformer's configuration"),
        ({"config": {"hidden_size": 8, "is_encoder_decoder": True}}, "an encoder with a decoder"),
        ({"pooling": {"pooling_mode_max_tokens": True}}, "pools by max"),
        ({"modules": [*MODULES, module("2", "LSTM")]}, "modules Transformer, Pooling, LSTM"),
        ({"modules": MODULES[1:]}, "has the modules Pooling"),
        ({"modules": [*MODULES, {"path": "2", "type": "x.Dense"}]}, r"asks for x\.Dense, which is custom code"),
        ({"modules": [MODULES[0], module("../p", "Pooling")]}, r"names \.\./p"),
        ({"modules": {"type": 1}}, "cannot be read"),
    ],
)
def test_refused(tmp_path, changes, said):
    with pytest.raises(InputError, match=rf"encoder\.model: .*{said}"):
        open_model(EncoderSpec(model=build(tmp_path / "m", **changes)))


def test_wrong_hash(tmp_path):
    model = build(tmp_path / "m")
    right = hashlib.sha256(WEIGHTS).hexdigest()
    assert open_model(EncoderSpec(model=model, sha256=right)).sha256 == right
    with pytest.raises(InputError, match=f"encoder.sha256: .* has {right}; allowed: {'0' * 64}"):
        open_model(EncoderSpec(model=model, sha256="0" * 64))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("absent", "no such folder; allowed: a folder, package:NAME, or a hub id"),
        (".", r"holds no config\.json"),
        ("a\0b", "not a path"),
        ("package:no_such_package", r"is not an installed package; .*pip install 'rayhier\[demo\]'"),
        ("package:../x", "the name of a top-level Python package"),
        ("package:rayhier", r"holds no folder with config\.json"),
    ],
)
def test_no_such_folder_or_package(tmp_path, monkeypatch, model, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=rf"encoder\.model: .*{said}"):
        open_model(EncoderSpec(model=model))


def test_a_package_is_found_and_not_imported(tmp_path, monkeypatch):
    build(tmp_path / "some_package" / "model")
    (tmp_path / "some_package" / "__init__.py").write_text("raise RuntimeError('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    assert open_model(EncoderSpec(model="package:some_package")).path == tmp_path / "some_package" / "model"
    assert "some_package" not in sys.modules


@pytest.mark.parametrize("weights", [WEIGHTS[:-1], WEIGHTS + b"x", b"", b"\x80\x04pickle, renamed"])
def test_damaged_weights(tmp_path, weights):
    model = build(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(weights)
    with pytest.raises(InputError, match="damaged or cut short"):
        open_model(EncoderSpec(model=model))


def with_dense(folder, weights="model.safetensors", **changes):
    model = build(folder, modules=[*MODULES, module("2_Dense", "Dense")])
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text(json.dumps({"in_features": 8, "out_features": 5, **changes}))
    (folder / "2_Dense" / weights).write_bytes(WEIGHTS)
    return model


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"activation_function": "torch.nn.modules.activation.ReLU"}, "the activation torch.*ReLU; allowed: .*Tanh"),
        ({"use_residual": True}, "use_residual true"),
        ({"in_features": 9}, "takes vectors of size 9, gets 8"),
        ({"weights": "pytorch_model.bin"}, r"2_Dense holds pytorch_model\.bin, a pickle"),
    ],
)
def test_refused_dense(tmp_path, changes, said):
    with pytest.raises(InputError, match=said):
        open_model(EncoderSpec(model=with_dense(tmp_path / "m", **changes)))


COUNT = ("tokenizer.json", "vocab.txt", "special_tokens_map.json", "sentence_bert_config.json")
COUNT += ("1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors")


@pytest.mark.parametrize("changed", [*COUNT, "README.md", "onnx/config.json"])
def test_which_files_count(tmp_path, changed):
    model = with_dense(tmp_path / "m")
    before = open_model(EncoderSpec(model=model))
    assert before.dimension == 5
    path = tmp_path / "m" / changed
    path.parent.mkdir(exist_ok=True)
    if changed.endswith("safetensors"):
        path.write_bytes(WEIGHTS[:-1] + b"x")
    else:
        given = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps({**given, "more": 1}))
    after = open_model(EncoderSpec(model=model))
    assert (after.files != before.files) == (changed in COUNT)
    assert after.sha256 == before.sha256


def shard(folder):
    """Weights in two files, the index naming the second one first."""
    build(folder, weights="model-00002-of-00002.safetensors")
    (folder / "model-00001-of-00002.safetensors").write_bytes(WEIGHTS[:-1] + b"x")
    names = {"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return str(folder)


def test_sharded_weights(tmp_path):
    model = shard(tmp_path / "m")
    digests = [hashlib.sha256(data).hexdigest() for data in (WEIGHTS[:-1] + b"x", WEIGHTS)]
    assert open_model(EncoderSpec(model=model)).sha256 == hashlib.sha256("".join(digests).encode()).hexdigest()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"a": "absent.safetensors"}, r"names absent\.safetensors, which is missing"),
        ({"a": "../m.safetensors"}, "is damaged"),
    ],
)
def test_damaged_index(tmp_path, names, message):
    model = shard(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(InputError, match=message):
        open_model(EncoderSpec(model=model))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty hub cache; nobody answers for the hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    return tmp_path / "hub"


def cache(hub, commit, revision="main"):
    """A snapshot as the hub's client lays it out."""
    folder = hub / "models--some-org--a.model"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / revision).write_text(commit)
    build(folder / "snapshots" / commit)
    return folder / "snapshots" / commit


def test_a_hub_id_is_found_in_the_cache(hub):
    newest, tagged = cache(hub, "a" * 40), cache(hub, "b" * 40, "v1")
    for revision, wanted in [("", newest), ("@main", newest), ("@v1", tagged), (f"@{'b' * 40}", tagged)]:
        assert open_model(EncoderSpec(model=f"some-org/a.model{revision}")).path == wanted


def test_a_snapshot_that_others_cached_in_part_is_not_taken(hub):
    snapshot = cache(hub, "a" * 40)
    (snapshot / "modules.json").unlink()
    with pytest.raises(InputError, match=r"not complete in the hub's local cache, .* allowed: a folder"):
        open_model(EncoderSpec(model="some-org/a.model"))


FETCHED = """1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors config.json merges.txt
    model-00001-of-00002.safetensors model.safetensors model.safetensors.index.json modules.json
    sentencepiece.bpe.model tokenizer.json vocab.txt"""
LEFT = """pytorch_model.bin 2_Dense/pytorch_model.bin modeling_custom.py onnx/model.onnx onnx/config.json
    openvino/openvino_model.bin tf_model.h5 flax_model.msgpack weights.pt README.md"""


def test_neither_pickles_nor_code_nor_other_formats_are_fetched():
    names = f"{FETCHED} {LEFT}".split()
    found = filter_repo_objects(names, allow_patterns=list(WANTED), ignore_patterns=list(UNWANTED))
    assert sorted(found) == FETCHED.split()
