"""How lines of progress name places."""

from rayhier.progress import here


def test_a_place_below_the_current_directory_is_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert here(tmp_path / "index" / "a") == "index/a"
    assert here("/elsewhere/a") == "/elsewhere/a"


def test_places_have_names_where_the_current_directory_was_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert here(gone / "a") == str(gone / "a")
