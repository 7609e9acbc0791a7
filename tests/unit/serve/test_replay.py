"""Replaying queries: files, recall against exact answers, and what is refused."""

import pytest

from rayhier.serve import replay
from rayhier.serve.errors import ApiError
from rayhier.serve.replay import Replayed, read_queries, shown

from .stand_ins import INDEX


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "queries"
        path.write_text(text)
        return path

    return write


def test_questions_are_lines_or_json(file):
    text = 'one question\n\n{"query": "two"}\n{"_id": "3", "text": "three"}\n  {"question": "four"}\n'
    assert read_queries(file(text)) == ["one question", "two", "three", "four"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "got 0 queries; allowed: 1 to 100,000"),
        ("a\n{\n", "queries:2: not JSON"),
        ('{"id": "3"}\n', "queries:1: holds no query; allowed: text, or JSON with query, text, question"),
        ('{"query": ["a"]}\n', "queries:1: holds no query"),
    ],
)
def test_wrong_files_are_refused(file, text, said):
    with pytest.raises(ValueError, match=said):
        read_queries(file(text))


BUSY = ApiError(503, "overloaded", "retry in a second", {"Retry-After": "1"})


class Fake:
    """A server whose exact answers are d0 to d9, and whose own lack some; it refuses queries below 0 when busy."""

    changed, asked = {}, []

    def __init__(self, *_, retries):
        self.retries = retries

    def index(self):
        return INDEX.model_copy(update={"leaves": 8, "limits": {"max_beam": 8}, **self.changed})

    def search(self, query, k, beam, *, rerank=None, include=None, strict=False):
        exact = beam == 8
        self.asked.append((query, self.retries, beam, rerank, strict))
        if int(query) < 0 and not self.retries:
            raise BUSY
        found = range(k) if exact else range(int(query), k)
        if int(query) == 9:
            found = []
        if self.changed.get("rerank") and rerank is not False:
            found = range(100, 100 + k)  # what re-ranking finds is not compared
        results = [type("Result", (), {"id": f"d{n}"}) for n in found]
        visited = type("Visited", (), {"fraction": 1.0 if exact else 0.25})
        return type("Answer", (), {"results": results, "visited": visited, "partial": query == "3"})


@pytest.fixture
def asks(file, monkeypatch, capsys):
    """`asks(text, *arguments, **changed)` replays queries of a file; exit code, lines of the table, errors, asked."""

    def replayed(text, *arguments, **changed):
        monkeypatch.setattr(replay, "Client", type("Changed", (Fake,), {"changed": changed, "asked": []}))
        code = replay.main([str(file(text)), *arguments])
        said = capsys.readouterr()
        lines = {line[:28].strip(): line[28:] for line in said.out.splitlines()}
        return code, lines, said.err, replay.Client.asked

    return replayed


def test_recall_is_of_what_the_server_finds_in_all_leaves(asks):
    code, lines, _, asked = asks("0\n2\n3\n", "-k", "10", "--clients", "2")
    assert code == 0
    assert lines["recall of exact, first 10"] == f"{(1 + 0.8 + 0.7) / 3:.4f}"
    assert lines["queries"] == "3"
    assert lines["partial answers"] == "1"
    assert lines["visited"].startswith("25.00%")
    assert sorted(asked) == sorted(
        ask for query in "023" for ask in ((query, 0, None, None, False), (query, replay.PATIENCE, 8, None, True))
    )


def test_questions_that_are_refused_are_counted_and_left_out(asks):
    code, lines, _, asked = asks("0\n-1\n2\n-1\n")
    assert code == 0
    assert (lines["queries"], lines["refused (503), left out"]) == ("4", "2")
    assert lines["recall of exact, first 10"] == f"{(1 + 0.8) / 2:.4f}"
    assert [ask[0] for ask in asked].count("-1") == 2


def test_a_server_that_refuses_all_is_said(asks):
    assert asks("-1\n")[::2] == (2, "error: the server refused every query; ask fewer at a time: --clients\n")


def test_other_errors_end_the_replay(asks, monkeypatch):
    monkeypatch.setattr(BUSY, "status", 422)
    assert asks("-1\n")[::2] == (2, "error: retry in a second\n")


def test_questions_without_exact_results_are_left_out_of_recall(asks):
    _, lines, _, _ = asks("2\n9\n")
    assert (lines["recall of exact, first 10"], lines["no exact results, left out"]) == ("0.8000", "1")
    _, lines, _, _ = asks("9\n")
    assert (lines["recall of exact, first 10"], lines["no exact results, left out"]) == ("-", "1")


def test_where_the_index_re_ranks_its_scan_is_compared_and_all_of_it_timed(asks):
    _, lines, _, asked = asks("2\n", rerank="axn")
    assert lines["recall of exact, first 10"] == "0.8000"
    patient = replay.PATIENCE
    assert asked == [("2", 0, None, None, False), ("2", patient, None, False, True), ("2", patient, 8, False, True)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"how": "level"}, "this index is searched by level, which compares all documents"),
        ({"mode": "bm25"}, "this index is searched by BM25, which visits no leaves"),
        ({"rerank": "rnr", "pool": "all"}, "this index re-ranks documents of all leaves"),
    ],
)
def test_what_has_nothing_to_compare_with_is_said(asks, changed, said):
    assert asks("0\n", **changed) == (2, {}, f"error: {said}: there is nothing to compare with\n", [])


def test_a_server_that_may_not_visit_all_leaves_is_said(asks):
    code, _, said, _ = asks("0\n", limits={"max_beam": 7})
    assert code == 2
    assert "limits.max_beam is 7, but exact search visits 8 leaves" in said
    assert "a server whose config says limits: {max_beam: 8}, or more" in said


def test_no_server_is_said(file, capsys):
    assert replay.main([str(file("0\n")), "--url", "http://127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_percentiles():
    found = [Replayed(1.0, float(ms), 0.1, partial=False) for ms in range(100)]
    lines = shown(found, INDEX, 10).splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("ms")] == ["50.0", "95.0"]
