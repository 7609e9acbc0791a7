"""Encoder folders are found and checked, and nothing of them runs."""

import hashlib
import json
import sys

import huggingface_hub.constants
import pytest

from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_folder import open_model

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
        ({"config": {"hidden_size": 8, "is_encoder_decoder": True}}, "an encoder with a decoder; allowed: encoders"),
        ({"pooling": {"pooling_mode_max_tokens": True}}, "pools by max; allowed: mean or cls"),
        ({"pooling": {"pooling_mode": "lasttoken"}}, "pools by lasttoken; allowed: mean or cls"),
        ({"pooling": {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}}, "pools by max and mean"),
        ({"pooling": {"pooling_mode": ["mean", "cls"]}}, "pools by mean and cls"),
        (
            {"modules": [*MODULES, {"path": "2", "type": f"{BUILT_IN}.LSTM"}]},
            "modules Transformer, Pooling, LSTM; allo",
        ),
        ({"modules": MODULES[1:]}, "has the modules Pooling; allowed: Transformer"),
        ({"modules": [*MODULES, {"path": "2", "type": "x.Dense"}]}, r"asks for x\.Dense, which is custom code"),
        (
            {"modules": [MODULES[0], {"path": "../p", "type": MODULES[1]["type"]}]},
            r"names \.\./p; allowed: folders inside",
        ),
        (
            {"modules": [MODULES[0], {"path": "2_Pooling", "type": MODULES[1]["type"]}]},
            r"modules\.json or a file it names cannot be read",
        ),
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


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("absent", "no such folder; allowed: a folder, package:NAME, or a hub id"),
        (".", r"holds no config\.json"),
        ("x" * 300, "not a path"),
        ("a\0b", "not a path"),
        ("~nosuchuser/x", "not a path"),
    ],
)
def test_no_folder_of_a_model(tmp_path, monkeypatch, model, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=rf"encoder\.model: .*{message}"):
        open_model(EncoderSpec(model=model))


def test_a_package_is_found_and_not_imported(tmp_path, monkeypatch):
    build(tmp_path / "some_package" / "model")
    (tmp_path / "some_package" / "__init__.py").write_text("raise RuntimeError('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    assert open_model(EncoderSpec(model="package:some_package")).path == tmp_path / "some_package" / "model"
    assert "some_package" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_package", r"is not an installed package; .*pip install 'rayhier\[demo\]'"),
        ("some.module", "the name of a top-level Python package"),
        ("../x", "the name of a top-level Python package"),
        ("__main__", "is not an installed package"),
        ("rayhier", r"holds no folder with config\.json"),
    ],
)
def test_no_such_package(name, message):
    with pytest.raises(InputError, match=message):
        open_model(EncoderSpec(model=f"package:{name}"))


@pytest.mark.parametrize("weights", [WEIGHTS[:-1], WEIGHTS[:12], WEIGHTS + b"x", b"", b"\x80\x04pickle, renamed"])
def test_damaged_weights(tmp_path, weights):
    model = build(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(weights)
    with pytest.raises(InputError, match="damaged or cut short"):
        open_model(EncoderSpec(model=model))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"activation_function": "torch.nn.modules.activation.ReLU"},
            r"has the activation torch.*ReLU; allowed: .*Tanh",
        ),
        ({"activation_function": "os.abort"}, r"has the activation os\.abort"),
        ({"use_residual": True}, r"has use_residual true"),
        ({"module_input_name": "token_embeddings"}, "has module_input_name token_embeddings; allowed: sentence_emb"),
        ({"in_features": 9}, "takes vectors of size 9, gets 8"),
    ],
)
def test_refused_dense(tmp_path, changes, message):
    model = with_dense(tmp_path / "m")
    assert open_model(EncoderSpec(model=model)).dimension == 5
    config = tmp_path / "m" / "2_Dense" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **changes}))
    with pytest.raises(InputError, match=message):
        open_model(EncoderSpec(model=model))


def with_dense(folder):
    model = build(folder, modules=[*MODULES, {"path": "2_Dense", "type": f"{BUILT_IN}.Dense"}])
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text(json.dumps({"in_features": 8, "out_features": 5}))
    (folder / "2_Dense" / "model.safetensors").write_bytes(WEIGHTS)
    return model


def test_a_pickled_dense_is_refused(tmp_path):
    model = with_dense(tmp_path / "m")
    (tmp_path / "m" / "2_Dense" / "model.safetensors").rename(tmp_path / "m" / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"2_Dense holds pytorch_model\.bin, a pickle"):
        open_model(EncoderSpec(model=model))


@pytest.mark.parametrize("config", [{"dim": 8}, {"d_model": 8}, {"n_embd": 8}])
def test_other_names_of_the_dimension(tmp_path, config):
    assert open_model(EncoderSpec(model=build(tmp_path / "m", config=config))).dimension == 8


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ("tokenizer.json", True),
        ("vocab.txt", True),
        ("special_tokens_map.json", True),
        ("sentence_bert_config.json", True),
        ("1_Pooling/config.json", True),
        ("2_Dense/config.json", True),
        ("2_Dense/model.safetensors", True),
        ("README.md", False),
        ("onnx/config.json", False),
    ],
)
def test_which_files_count(tmp_path, changed, counts):
    model = with_dense(tmp_path / "m")
    before = open_model(EncoderSpec(model=model))
    path = tmp_path / "m" / changed
    path.parent.mkdir(exist_ok=True)
    if changed.endswith("safetensors"):
        path.write_bytes(WEIGHTS[:-1] + b"x")
    else:
        given = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps({**given, "more": 1}))
    after = open_model(EncoderSpec(model=model))
    assert (after.files != before.files) == counts
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
        ({"a": "../m.safetensors"}, "is damaged; allowed: an index"),
        ({"a": "weights.bin"}, "is damaged; allowed: an index"),
        ({}, "is damaged; allowed: an index"),
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


def test_a_folder_goes_before_the_hub(hub, tmp_path, monkeypatch):
    cache(hub, "a" * 40)
    build(tmp_path / "some-org" / "a.model")
    monkeypatch.chdir(tmp_path)
    assert open_model(EncoderSpec(model="some-org/a.model")).path == tmp_path / "some-org" / "a.model"
