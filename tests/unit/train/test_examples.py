"""Batches cover the pairs; known positives are a set."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.train.examples import Examples, batches


@given(st.integers(1, 500), st.integers(2, 80), st.integers(0, 5), st.integers(0, 5))
def test_batches_hold_every_pair_once(pairs, batch_size, seed, epoch):
    found = batches(pairs, batch_size, seed, epoch)
    assert sorted(np.concatenate(found).tolist()) == list(range(pairs))
    sizes = [len(rows) for rows in found]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= batch_size
    assert len(found) == -(-pairs // batch_size)


def test_batches_depend_on_seed_and_epoch_alone():
    def order(seed, epoch):
        return np.concatenate(batches(100, 16, seed, epoch)).tolist()

    first = order(1, 2)
    np.random.default_rng(0).random(10)
    assert order(1, 2) == first
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9
    assert first != sorted(first)


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=40)


def known(pairs):
    vectors = np.eye(10, dtype=np.float32)
    return Examples(vectors[:7], vectors, np.array(pairs, dtype=np.int64)).known()


@given(PAIRS)
def test_known_is_a_set_of_pairs(pairs):
    found = known(pairs)(np.arange(7)[:, None], np.arange(10)[None, :])
    assert found.shape == (7, 10)
    assert {tuple(place) for place in np.argwhere(found).tolist()} == set(pairs)


@given(PAIRS, st.lists(st.integers(0, 9), min_size=10, max_size=10))
def test_a_copy_of_an_answer_is_an_answer(pairs, same):
    """Document n has the vector of direction same[n]; a copy is embedded in another batch, so its last bits differ."""
    vectors = np.eye(10, dtype=np.float32)
    document_NM = vectors[same] + np.float32(1e-7) * np.arange(10, dtype=np.float32)[:, None]
    found = Examples(vectors[:7], document_NM, np.array(pairs)).known()(np.arange(7)[:, None], np.arange(10)[None, :])
    wanted = {(query, other) for query, document in pairs for other in range(10) if same[other] == same[document]}
    assert {tuple(place) for place in np.argwhere(found).tolist()} == wanted


@given(PAIRS)
def test_most_is_the_largest_number_of_positives(pairs):
    distinct = set(pairs)
    assert known(pairs).most() == max(sum(query == own for own, _ in distinct) for query, _ in distinct)


@given(st.integers(0, 10_000))
@settings(max_examples=60)
def test_among_a_batch_is_each_pair_asked(seed):
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, [6, 9], size=(rng.integers(1, 25), 2)), axis=0)
    known = Examples(np.eye(9)[:6], np.eye(9)[rng.integers(0, 9, 9)], pairs).known()
    queries, documents = rng.integers(0, 6, rng.integers(0, 8)), rng.integers(0, 9, rng.integers(0, 12))
    assert known.among(queries, documents).tolist() == known(queries[:, None], documents[None, :]).tolist()
