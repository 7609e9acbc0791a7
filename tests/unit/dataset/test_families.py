"""Families of queries that share an answer or half of their words, by brute force over all pairs; and their folds."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayhier.dataset.families import families, folds, normal


def related(first, other):
    """Return True if two queries, each its words and its answers, share an answer or half of all their words."""
    (first_words, first_answers), (other_words, other_answers) = first, other
    union = first_words | other_words
    return bool(first_answers & other_answers) or (bool(union) and 2 * len(first_words & other_words) >= len(union))


def joined(queries):
    """Number families by brute force: a query takes the number of each related query before it, and all that had it."""
    family = list(range(len(queries)))
    for i, j in combinations(range(len(queries)), 2):
        if related(queries[i], queries[j]):
            old, new = family[j], family[i]
            family = [new if number == old else number for number in family]
    return family


sets = st.frozensets(st.sampled_from("abcdefgh"), max_size=4)


@given(st.lists(st.tuples(sets, st.frozensets(st.sampled_from("uvwxyz"), max_size=2)), min_size=1, max_size=12))
@pytest.mark.parametrize("pairs", [4, 10**6], ids=["compared in parts", "at once"])
def test_families_are_connected_through_answers_and_words(pairs, queries):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rayhier.dataset.families.PAIRS", pairs)
        family_Q = families([names for names, _ in queries], [answers for _, answers in queries])
    wanted = joined(queries)
    for i, j in combinations(range(len(queries)), 2):
        assert (family_Q[i] == family_Q[j]) == (wanted[i] == wanted[j])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(2, 6), st.integers(0, 3))
def test_folds_hold_whole_families_in_about_equal_numbers(family, count, seed):
    family_Q = np.array(family)
    sizes = np.bincount(family_Q)
    if count > (sizes > 0).sum():
        with pytest.raises(ValueError, match="the number of families"):
            folds(family_Q, count, seed)
        return
    fold_Q = folds(family_Q, count, seed)
    assert all(len(set(fold_Q[family_Q == number])) == 1 for number in family)
    assert set(fold_Q) == set(range(count))
    assert np.ptp(np.bincount(fold_Q)) <= sizes.max()
    assert (fold_Q == folds(family_Q, count, seed)).all()


def test_words_and_answers_are_of_the_same_queries():
    with pytest.raises(ValueError, match="words of 1 queries and answers of 2"):
        families([["a"]], [["x"], ["y"]])


@pytest.mark.parametrize(
    ("one", "other"),
    [("क्या है।", "क्या है"), ("ما هذا؟", "ما هذا"), ("¿Qué es?", "qué es"), ("e\u200bx", "Ex!"), ("ﬁne \ufeff?", "fine")],
)
def test_texts_that_differ_in_marks_alone_are_the_same(one, other):
    assert normal(one) == normal(other)
