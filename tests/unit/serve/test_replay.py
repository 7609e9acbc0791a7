"""Replaying questions: files, recall against exact answers, and what is refused."""

import pytest

from rayhier.serve import replay
from rayhier.serve.replay import Replayed, read_questions, shown

from .test_api import INDEX


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "queries"
        path.write_text(text)
        return path

    return write


def test_questions_are_lines_or_json(file):
    text = 'one question\n\n{"query": "two"}\n{"_id": "3", "text": "three"}\n  {"question": "four"}\n'
    assert read_questions(file(text)) == ["one question", "two", "three", "four"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "got 0 questions; allowed: 1 to 100,000"),
        ("a\n{\n", "queries:2: not JSON"),
        ('{"id": "3"}\n', "queries:1: holds no question; allowed: text, or JSON with query, text, question"),
        ('{"query": ["a"]}\n', "queries:1: holds no question"),
    ],
)
def test_wrong_files_are_refused(file, text, said):
    with pytest.raises(ValueError, match=said):
        read_questions(file(text))


class Fake:
    """A server whose exact answers are d0 to d9, and whose own lack some."""

    def __init__(self, *_):
        self.asked = []

    def index(self):
        return INDEX.model_copy(update={"leaves": 8, "limits": {"max_beam": 8}})

    def search(self, question, k, beam):
        self.asked.append((question, k, beam))
        found = range(k) if beam == 8 else range(int(question), k)
        results = [type("Result", (), {"id": f"d{n}"}) for n in found]
        visited = type("Visited", (), {"fraction": 1.0 if beam == 8 else 0.25})
        return type("Answer", (), {"results": results, "visited": visited, "partial": question == "3"})


def test_recall_is_of_what_the_server_finds_in_all_leaves(file, monkeypatch, capsys):
    monkeypatch.setattr(replay, "Client", Fake)
    assert replay.main([str(file("0\n2\n3\n")), "-k", "10", "--clients", "2"]) == 0
    said = dict(line.rsplit("  ", 1) for line in capsys.readouterr().out.splitlines())
    lines = {name.strip(): value.strip() for name, value in said.items()}
    assert lines["recall of exact, first 10"] == f"{(1 + 0.8 + 0.7) / 3:.4f}"
    assert lines["questions"] == "3"
    assert lines["partial answers"] == "1"
    assert lines["visited"].startswith("25.00%")


def test_a_server_that_may_not_visit_all_leaves_is_said(file, monkeypatch, capsys):
    class Narrow(Fake):
        def index(self):
            return INDEX.model_copy(update={"leaves": 8, "limits": {"max_beam": 7}})

    monkeypatch.setattr(replay, "Client", Narrow)
    assert replay.main([str(file("0\n"))]) == 2
    assert "limits.max_beam is 7, but exact search visits 8 leaves" in capsys.readouterr().err


def test_no_server_is_said(file, capsys):
    assert replay.main([str(file("0\n")), "--url", "http://127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_percentiles():
    found = [Replayed(1.0, float(ms), 0.1, partial=False) for ms in range(100)]
    lines = shown(found, INDEX, 10).splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("ms")] == ["50.0", "95.0"]
