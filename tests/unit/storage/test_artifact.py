"""record.json is all that a reader trusts, and every file must be the one it lists."""

import pytest

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.files import seal, unseal


@pytest.fixture
def artifact(folder):
    with Attempt.start(Place(folder / "index" / "0123456789ab")) as attempt:
        (attempt.root / "a.bin").write_bytes(b"aaaa")
        return attempt.publish("index", {"model": "m" * 12}, Output({"documents": 2}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": 1, "new": "field"}, "format 1, not 2: .*Use another workdir"),
        ({"new": "field"}, "not a record of format 2: new"),
        ({"files": None}, "not a record of format 2: files"),
        (None, "not a file that rayhier wrote.*--fresh --stage index"),
    ],
)
def test_a_record_that_is_damaged_or_of_another_format_is_refused(artifact, changed, message):
    record = artifact.folder / "record.json"
    files.replace(record, b'{"kind": ' if changed is None else seal(unseal(record) | changed))
    with pytest.raises(InputError, match=rf"record\.json: {message}"):
        Place(artifact.folder).published()


def test_the_record_goes_before_its_files(artifact, monkeypatch):
    published = []
    monkeypatch.setattr(files, "remove", lambda folder: published.append((folder / "record.json").exists()))
    Place(artifact.folder).remove()
    assert published == [False]
