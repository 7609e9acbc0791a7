"""current.json names the artifacts that search and index open."""

import json

import pytest

from rayhier.spec import InputError
from rayhier.storage import current
from rayhier.storage.current import Current

from ...toys import job


def test_reading_back(folder):
    written = Current(spec=job(), artifacts={"index": "0123456789ab"}, seeds={"1": {"index": "ba9876543210"}})
    current.write(folder, written)
    assert current.read(folder) == written


def test_nothing_yet(folder):
    with pytest.raises(InputError, match=r"current\.json: no such file; build an index"):
        current.read(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        (
            json.dumps({"format": 1, "new": "field"}),
            "format 1, not 5: was written by another version of rayhier; use another workdir",
        ),
        (json.dumps({"format": 5}), "cannot be read: Field required"),
    ],
)
def test_refused(folder, text, message):
    (folder / "current.json").write_bytes(text.encode())
    with pytest.raises(InputError, match=message):
        current.read(folder)


def test_a_kind_that_is_not_there(folder):
    with pytest.raises(InputError, match="names no index"):
        current.artifact(folder, Current(spec=job(), artifacts={}), "index")
