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


def configured(**values):
    return lambda folder: (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | values)
    )


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"is_encoder_decoder": False}, "describes no encoder with a decoder"),
        ({"auto_map": {"AutoModel": "m.M"}}, "asks to run its own code"),
        ([], "is not a model's configuration"),
    ],
)
def test_what_is_no_model_that_writes_is_refused(writer, config, said):
    """What else is no model is refused as for encoders (test_model_folder.py)."""
    path = writer / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config if config else [1]))
    with pytest.raises(InputError, match=rf"^train\.generated\.model: .*{said}"):
        model(writer)
