"""record.json is all that a reader trusts, and every file must be the one it lists."""

import pytest

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.files import seal, unseal


@pytest.fixture
def artifact(folder):
    """An index of two files, published."""
    with Attempt.start(Place(folder / "index" / "0123456789ab")) as attempt:
        (attempt.root / "data").mkdir()
        (attempt.root / "data" / "a.bin").write_bytes(b"aaaa")
        (attempt.root / "b.bin").write_bytes(b"bbbb")
        return attempt.publish("index", {"model": "m" * 12}, Output({"documents": 2}))


def test_reading_back(artifact):
    found = Artifact.open(artifact.folder)
    found.verify()
    assert found.record == artifact.record
    assert found.record.counts == {"documents": 2}
    assert found.names("") == ["b.bin", "data/a.bin"]
    assert found.names("data/") == ["data/a.bin"]
    assert found.path("data/a.bin").read_bytes() == b"aaaa"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b"aaab"), r"a\.bin: SHA-256 is \w+…, but \w+… was published"),
        (lambda path: path.write_bytes(b"aaa"), r"a\.bin: 3 bytes, but 4 were published"),
        (lambda path: path.unlink(), r"a\.bin: was published, but is missing"),
    ],
    ids=["flipped byte", "truncated", "missing"],
)
def test_verify_names_the_file_that_differs(artifact, damage, message):
    damage(artifact.path("data/a.bin"))
    with pytest.raises(InputError, match=message) as caught:
        artifact.verify()
    assert "--fresh --stage index" in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"format": 1, "new": "field"},
            r"record\.json: format 1, not 2: was written by another version of rayhier; use another workdir",
        ),
        ({"new": "field"}, r"record\.json: not a record of format 2: new"),
        ({"files": None}, r"record\.json: not a record of format 2: files"),
    ],
)
def test_a_record_of_another_format_is_refused(artifact, changed, message):
    record = artifact.folder / "record.json"
    files.replace(record, seal(unseal(record) | changed))
    with pytest.raises(InputError, match=message):
        Place(artifact.folder).published()


def test_a_damaged_record_is_refused(artifact):
    (artifact.folder / "record.json").write_bytes(b'{"kind": ')
    with pytest.raises(InputError, match=r"record\.json: not a file that rayhier wrote.*--fresh --stage index"):
        Place(artifact.folder).published()


def test_nothing_published(folder):
    place = Place(folder / "corpus" / "0123456789ab")
    assert place.published() is None
    assert place.kind == "corpus"
    with pytest.raises(InputError, match="no artifact is published there"):
        Artifact.open(place.folder)


def test_the_record_goes_before_its_files(artifact, monkeypatch):
    published = []
    monkeypatch.setattr(files, "remove", lambda folder: published.append((folder / "record.json").exists()))
    Place(artifact.folder).remove()
    assert published == [False]
