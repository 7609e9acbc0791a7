"""What the shell prints of an answer, and what it refuses."""

from types import SimpleNamespace

import pytest

from rayhier.search import __main__ as shell
from rayhier.search.__main__ import main
from rayhier.search.request.hits import Answer, Hit
from rayhier.search.request.request import Rules
from rayhier.search.snapshot import Snapshot
from rayhier.spec.search import SearchSpec

from ...toys import job


class Opened(SimpleNamespace):
    """What is searched, and always answers the same."""

    rules, levels = Rules(SearchSpec(), 9, 10, {"year": "int"}, words=True), None
    model, spec = SimpleNamespace(router=SimpleNamespace(n_leaves=9)), job()

    def __len__(self):
        return 10

    def answer(self, _):
        return [Answer(self.hits, [3, 1], 4, 0.4, enough=True)]


def test_declared_fields_stand_below_their_hit(monkeypatch, capsys):
    hits = [
        Hit("d1", 0.5, 3, "a title", "a\ntext", {"year": 2021, "lang": "en"}),
        Hit("d2", 0.4, 3, "", "a text", {"year": None, "lang": None}),
        Hit("d3", 0.3, 1, "d3", "", {"year": None, "lang": "de"}),
        Hit("d4", 0.2, 1, "d4", "", {}),
    ]
    monkeypatch.setattr(Snapshot, "open", lambda _: Opened(hits=hits))
    monkeypatch.setattr(shell, "published_rules", lambda _: Opened.rules)
    assert main(["work", "oak"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "     score  leaf     document",
        "  1  0.5000 3        d1  a title",
        "     a text",
        "     year=2021 lang=en",
        "  2  0.4000 3        d2  a text",
        "  3  0.3000 1        d3",
        "     lang=de",
        "  4  0.2000 1        d4",
        "visited 4 documents (40.0%) in 2 of 9 leaves: 3, 1",
    ]


def test_the_shell_says_where_no_index_is_and_refuses_odd_questions(tmp_path, capsys):
    for query, said in (("oak", "current.json: no such file. Build an index with rayhier run"), ("  ", "query: got ")):
        assert main([str(tmp_path), query]) == 2
        assert said in capsys.readouterr().err
    for option in ("-k=0", "-k=10001", "-k=x", "--beam=0"):
        with pytest.raises(SystemExit, match="2"):
            main([str(tmp_path), "oak", option])
        assert "usage: rayhier search" in capsys.readouterr().err
