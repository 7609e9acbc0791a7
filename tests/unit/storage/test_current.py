"""current.json names the artifacts that search and index open."""

import pytest

from rayhier.spec import InputError
from rayhier.storage import current
from rayhier.storage.current import Current

from ...toys import job


def test_reading_back(folder):
    written = Current(spec=job(), artifacts={"index": "0123456789ab"}, seeds={"1": {"index": "ba9876543210"}})
    current.write(folder, written)
    assert current.read(folder) == written


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "no such file. Build an index"),
        (b"{", "cannot be read as JSON"),
        (b'{"format": 1, "new": "field"}', "format 1, not 5: .*Use another workdir"),
        (b'{"format": 5}', "cannot be read: Field required"),
    ],
)
def test_refused(folder, data, message):
    if data is not None:
        (folder / "current.json").write_bytes(data)
    with pytest.raises(InputError, match=rf"current\.json: {message}"):
        current.read(folder)
