"""What is a hub id, and which files of a repository are fetched; finding snapshots is in test_model_folder.py."""

import pytest
from huggingface_hub.utils import filter_repo_objects

from rayhier.storage.model_folder import UNWANTED, WANTED, is_hub_id


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", True),
        ("org/name@main", True),
        ("org/name@refs/pr/1", True),
        ("name", False),
        ("a/b/c", False),
        ("./models/m", False),
        ("/models/m", False),
        ("~/m", False),
        ("../m", False),
        ("org/name@", False),
        ("org/na me", False),
    ],
)
def test_hub_id(text, wanted):
    assert is_hub_id(text) == wanted


def test_neither_pickles_nor_code_nor_other_formats_are_fetched():
    wanted = [
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "config.json",
        "merges.txt",
        "model-00001-of-00002.safetensors",
        "model.safetensors",
        "model.safetensors.index.json",
        "modules.json",
        "sentencepiece.bpe.model",
        "tokenizer.json",
        "vocab.txt",
    ]
    unwanted = [
        "pytorch_model.bin",
        "2_Dense/pytorch_model.bin",
        "modeling_custom.py",
        "onnx/model.onnx",
        "onnx/config.json",
        "openvino/openvino_model.bin",
        "tf_model.h5",
        "flax_model.msgpack",
        "weights.pt",
        "README.md",
    ]
    found = filter_repo_objects([*wanted, *unwanted], allow_patterns=list(WANTED), ignore_patterns=list(UNWANTED))
    assert sorted(found) == wanted
