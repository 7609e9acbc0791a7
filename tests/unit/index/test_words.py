"""Keywords of six documents by hand, and counts that are summed, written and read."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.index.words import Counts, counted, joined, kilgarriff

TEXTS = [
    ("Cats", "purr purr"),
    ("cats", "and dogs sleep"),
    ("Dogs", "bark; loud BARK"),
    ("a dog", "bone bone"),
    ("Stars", "sky, moon!"),
    ("", "moon shines é"),
]
"""Words of two letters and more: leaf 0 has 3 + 4, leaf 1 has 4 + 3, leaf 2 has 3 + 2, leaf 3 none."""
TABLE = pa.table(
    {
        "leaf": pa.array([0, 0, 1, 1, 2, 2], pa.int32()),
        "title": [title for title, _ in TEXTS],
        "text": [text for _, text in TEXTS],
    }
)
LEAVES = 4


def score(own, of, rest, others):
    return (1e6 * own / of + 100) / (1e6 * rest / others + 100)


def test_every_word_is_counted_where_it_stands():
    found = counted(TABLE, LEAVES)
    assert found.total_K.tolist() == [7, 7, 5, 0]
    named = {
        (leaf, found.words[word]): count
        for leaf, word, count in zip(found.node_A.tolist(), found.word_A.tolist(), found.count_A.tolist(), strict=True)
    }
    assert named == {
        (0, "cats"): 2,
        (0, "purr"): 2,
        (0, "and"): 1,
        (0, "dogs"): 1,
        (0, "sleep"): 1,
        (1, "dogs"): 1,
        (1, "bark"): 2,
        (1, "loud"): 1,
        (1, "dog"): 1,
        (1, "bone"): 2,
        (2, "stars"): 1,
        (2, "sky"): 1,
        (2, "moon"): 2,
        (2, "shines"): 1,
    }


def test_the_formula_by_hand():
    """`dogs`: once among the seven words of leaf 0, once among the twelve others."""
    found = kilgarriff(np.array([1]), np.array([7]), np.array([2]), 19)
    assert found[0] == pytest.approx(score(1, 7, 1, 12))


def test_keywords_of_leaves_and_of_their_parents():
    found = counted(TABLE, LEAVES)
    best = found.keywords(2)
    assert [set(words) for words in best] == [{"cats", "purr"}, {"bark", "bone"}, {"moon", "stars"}, set()]
    assert "dogs" in found.keywords(9)[0]
    above = found.above(np.array([0, 0, 1, 1]), 2)
    assert above.total_K.tolist() == [14, 5]
    assert above.keywords(1)[1] == ["moon"]
    assert "dogs" in above.keywords(5)[0], "twice in the node, never elsewhere"


def test_parts_join_to_the_whole_and_survive_a_file():
    parts = [counted(TABLE.slice(0, 3), LEAVES), counted(TABLE.slice(3), LEAVES)]
    whole, again = counted(TABLE, LEAVES), [Counts.of(part.table(), LEAVES) for part in parts]
    for found in (joined(parts), joined(again)):
        assert [set(words) for words in found.keywords(9)] == [set(words) for words in whole.keywords(9)]
        assert found.total_K.tolist() == whole.total_K.tolist()


def test_no_documents_and_no_words():
    assert counted(TABLE.slice(0, 0), 2).keywords(3) == [[], []]
    blank = pa.table({"leaf": pa.array([1], pa.int32()), "title": [""], "text": ["… !"]})
    assert counted(blank, 2).keywords(3) == [[], []]
