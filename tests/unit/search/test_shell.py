"""What the shell prints of an answer."""

from types import SimpleNamespace

import pytest

from rayhier.search.__main__ import fields_line, main
from rayhier.search.answer import Answer, Hit
from rayhier.search.searcher import Searcher


@pytest.fixture
def printed(monkeypatch, capsys):
    """`printed(hits)`: the lines of an answer of these hits."""

    def run(hits):
        router = SimpleNamespace(n_leaves=9)
        answer = Answer(hits, [3, 1], 4, 0.4)
        model = SimpleNamespace(router=router)
        searcher = SimpleNamespace(router=router, model=model, levels=None, search=lambda *_: [answer])
        monkeypatch.setattr(Searcher, "open", lambda workdir: searcher)
        assert main(["work", "oak"]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def test_declared_fields_stand_below_their_hit(printed):
    hits = [
        Hit("d1", 0.5, 3, "a title", "", {"year": 2021, "lang": "en"}),
        Hit("d2", 0.4, 3, "", "a text", {"year": None, "lang": None}),
        Hit("d3", 0.3, 1, "d3", "", {"year": None, "lang": "de"}),
        Hit("d4", 0.2, 1, "d4", ""),
    ]
    assert printed(hits) == [
        "  1  0.5000  leaf 3      d1  a title",
        "     year=2021 lang=en",
        "  2  0.4000  leaf 3      d2  a text",
        "  3  0.3000  leaf 1      d3",
        "     lang=de",
        "  4  0.2000  leaf 1      d4",
        "visited 4 documents (40.0%) in 2 of 9 leaves: 3, 1",
    ]


def test_a_long_field_ends_with_its_line(printed):
    assert printed([Hit("d1", 0.5, 3, "t", "", {"note": "x" * 500})])[1] == f"     note={'x' * 95}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.5, "0.5"),
        (False, "false"),
        ("", '""'),
        ("two words", '"two words"'),
        ('"', r'"\""'),
        ("Größe", "Größe"),
        ("in Köln", '"in Köln"'),
        ("a\nb", r'"a\nb"'),
        ("\x1b[2J", r'"\u001b[2J"'),
        ("\u202e", r'"\u202e"'),
    ],
)
def test_a_value_is_on_its_line_and_can_be_told_from_the_next(value, shown):
    assert fields_line({"none": None, "a": value, "b": 1}) == f"a={shown} b=1"
