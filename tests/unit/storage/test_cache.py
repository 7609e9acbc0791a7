"""What libraries read from paths is fetched once, whole, and never trusted unread."""

from pathlib import Path

import pytest

from rayhier.spec import InputError
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.paths import locate


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(s3):
    return publish(locate(s3))


def publish(folder):
    with Attempt.start(Place(folder / "model" / "0123456789ab")) as attempt:
        (attempt.root / "encoder" / "1_Pooling").mkdir(parents=True)
        (attempt.root / "encoder" / "weights").write_bytes(b"w")
        (attempt.root / "encoder" / "1_Pooling" / "config.json").write_bytes(b"{}")
        (attempt.root / "encoders").write_bytes(b"beside")
        return attempt.publish("model", {}, Output({}))


def test_a_folder_of_the_artifact_on_this_machine(folder):
    model = publish(folder)
    found = model.local("encoder")
    assert isinstance(found, Path)
    assert (found / "weights").read_bytes() == b"w"
    assert (found / "1_Pooling" / "config.json").read_bytes() == b"{}"


def test_what_was_fetched_is_read_without_the_bucket(model, home):
    found = model.local("encoder")
    model.path("encoder/weights").unlink()
    assert model.local("encoder") == found
    assert [path.name for path in home.iterdir()] == [found.parent.name]


def test_a_damaged_copy_is_fetched_again(model):
    (model.local("encoder") / "weights").write_bytes(b"x")
    assert (model.local("encoder") / "weights").read_bytes() == b"w"


def test_a_damaged_original_is_refused_and_not_kept(model, home):
    model.path("encoder/weights").write_bytes(b"x")
    with pytest.raises(InputError, match="is not the file that was published"):
        model.local("encoder")
    assert list(home.iterdir()) == []


def test_nothing_is_copied_of_what_is_here(tmp_path, home):
    model = publish(tmp_path)
    assert model.local("encoder") == model.root / "encoder"
    assert not home.exists()
