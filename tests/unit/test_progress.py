"""Lines of progress: how they name places, and the note of a bar."""

import pytest

from rayhier import progress
from rayhier.progress import Bar, counted, here


def test_a_place_below_the_current_directory_is_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert here(tmp_path / "index" / "a") == "index/a"
    assert here("/elsewhere/a") == "/elsewhere/a"


def test_places_have_names_where_the_current_directory_was_removed(tmp_path, monkeypatch):
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert here(gone / "a") == str(gone / "a")


@pytest.mark.parametrize(
    ("rows", "documents", "said"),
    [
        (1, None, "1 document"),
        (2, 2, "2 documents"),
        (5_000, 1, "1 document (5,000 passages)"),
        (1, 31, "31 documents"),
    ],
)
def test_passages_are_counted_if_there_are_more_than_documents(rows, documents, said):
    assert counted(rows, documents) == said


@pytest.mark.parametrize(("notes", "last"), [(["loss 0.5", ""], "  loss 0.5"), (["", "loss 0.4"], "  loss 0.4")])
def test_a_note_is_shown_until_the_next(notes, last, monkeypatch):
    said = []
    monkeypatch.setattr(progress, "say", said.append)
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    with Bar("train", 3, "pairs") as bar:
        bar._speaks = 0.0
        for note in notes:
            bar.advance(note=note)
    assert said[-1] == f"  train: 2 of 3 pairs{last}"


def test_a_narrow_terminal_shows_whole_counts(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    bar = progress._bar()
    bar.add_task("calibrate seed 0", total=8_841_823, completed=1_234_567, note="loss 0.5123, dev 0.4235, 12,345 pairs")
    with bar.console.capture() as shown:
        bar.console.print(bar.get_renderable())
    assert "1234567/8841823" in shown.get()
    assert len(shown.get().splitlines()) == 1
