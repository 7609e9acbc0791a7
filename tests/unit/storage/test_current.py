"""current.json names the artifacts that search and index open."""

import json

import pytest

from rayhier.spec import InputError, JobSpec
from rayhier.storage import current
from rayhier.storage.current import Current

SPEC = JobSpec.model_validate(
    {
        "name": "a",
        "workdir": "runs/a",
        "corpus": {"type": "python_docs"},
        "encoder": {"model": "m"},
        "router": {"type": "ehi"},
    }
)


def test_reading_back(tmp_path):
    written = Current(spec=SPEC, artifacts={"index": "0123456789ab"}, seeds={"1": {"index": "ba9876543210"}})
    current.write(tmp_path, written)
    assert current.read(tmp_path) == written


def test_nothing_yet(tmp_path):
    with pytest.raises(InputError, match=r"current\.json: no such file; build an index"):
        current.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        (json.dumps({"format": 2, "new": "field"}), "format 2; this version reads 1"),
        (json.dumps({"format": 1}), "cannot be read: Field required"),
    ],
)
def test_refused(tmp_path, text, message):
    (tmp_path / "current.json").write_text(text)
    with pytest.raises(InputError, match=message):
        current.read(tmp_path)


def test_a_kind_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="names no index"):
        current.artifact(tmp_path, Current(spec=SPEC, artifacts={}), "index")
