"""What is a hub id, and which files of a repository are fetched; finding snapshots is in test_model_folder.py."""

import pytest
from huggingface_hub.utils import filter_repo_objects

from rayhier.storage.model_folder import UNWANTED, WANTED, is_hub_id


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (("sentence-transformers/all-MiniLM-L6-v2", "org/name@main", "org/name@refs/pr/1"), True),
        (("name", "a/b/c", "./models/m", "/models/m", "~/m", "../m", "org/name@", "org/na me"), False),
    ],
)
def test_hub_id(texts, wanted):
    assert all(is_hub_id(text) is wanted for text in texts)


FETCHED = """1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors config.json merges.txt
    model-00001-of-00002.safetensors model.safetensors model.safetensors.index.json modules.json
    sentencepiece.bpe.model tokenizer.json vocab.txt"""
LEFT = """pytorch_model.bin 2_Dense/pytorch_model.bin modeling_custom.py onnx/model.onnx onnx/config.json
    openvino/openvino_model.bin tf_model.h5 flax_model.msgpack weights.pt README.md"""


def test_neither_pickles_nor_code_nor_other_formats_are_fetched():
    names = f"{FETCHED} {LEFT}".split()
    found = filter_repo_objects(names, allow_patterns=list(WANTED), ignore_patterns=list(UNWANTED))
    assert sorted(found) == FETCHED.split()
