"""Documents that queries are written for: the first by hash of seed and id."""

import pytest

from rayhier.generate.ray import hashes, last_hash

from .conftest import by_hand

IDS = [f"d{row}" for row in range(6)]


def test_the_hash_is_of_seed_and_id():
    assert hashes(IDS, 3).tolist() == [by_hand(name, 3) for name in IDS]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_seeds_draw_other_documents(make_corpus, most):
    corpus, drawn = make_corpus(), []
    for seed in range(4):
        last = last_hash(corpus, most, seed)
        drawn.append({name for name in IDS if by_hand(name, seed) <= last})
        assert len(drawn[-1]) == most
    assert len(set(map(frozenset, drawn))) > 1
    assert last_hash(corpus, 6, 0) is None
