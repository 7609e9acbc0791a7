"""Mined negatives against a scan written out by hand; batches cover the pairs; known positives are a set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.search.segment.scan import ListedRows, scan
from rayhier.train.examples import Examples, batches
from rayhier.train.pairs import draw, mine

N, Q, M, L = 80, 12, 6, 7


class Case:
    def __init__(self, seed, beam):
        rng = np.random.default_rng(seed)
        self.documents = rng.normal(size=(N, M)).astype(np.float32)
        self.queries = rng.normal(size=(Q, M)).astype(np.float32)
        self.leaf_of = rng.integers(0, L, N)
        best = np.argsort(-(self.queries @ self.documents.T), axis=1)
        self.positives = [set(best[query, : rng.integers(1, 7)].tolist()) for query in range(Q)]
        pairs = np.array([(query, document) for query in range(Q) for document in sorted(self.positives[query])])
        self.known = Examples(self.queries, self.documents, pairs).known()
        self.query_P = pairs[:, 0]
        self.leaves = np.stack([rng.permutation(L)[:beam] for _ in pairs])

    def mine(self, top):
        order_N = np.append(np.argsort(self.leaf_of, kind="stable"), -1)
        rows = ListedRows.of(self.documents[order_N[:-1]], np.bincount(self.leaf_of, minlength=L))
        query_PM = self.queries[self.query_P]
        search = lambda part, k: order_N[scan(rows, query_PM[part], self.leaves[part], k).row_QT]  # noqa: E731
        return mine(search, self.query_P, self.known, top)

    def by_hand(self, top):
        for query, leaves in zip(self.query_P, self.leaves, strict=True):
            allowed = [row for row in range(N) if self.leaf_of[row] in leaves and row not in self.positives[query]]
            best = sorted(allowed, key=lambda row: -(self.documents[row] @ self.queries[query]))[:top]
            yield best + [-1] * (top - len(best))


@given(st.integers(0, 10_000), st.integers(1, L), st.sampled_from([1, 3, 10, 40]))
@settings(max_examples=40)
def test_the_best_wrong_documents_of_the_given_leaves(seed, beam, top):
    case = Case(seed, beam)
    assert case.mine(top).tolist() == list(case.by_hand(top))


MINED = np.array([[5, 6, 7, 8], [3, 4, -1, -1], [9, -1, -1, -1], [-1, -1, -1, -1]])


def test_several_are_drawn_each_at_most_once():
    drawn = np.stack([draw(MINED, 3, np.random.default_rng(seed)) for seed in range(2000)])
    assert all(len(set(row)) == 3 and set(row) < {5, 6, 7, 8} for row in drawn[:, 0].tolist())
    assert [np.mean((drawn[:, 0] == row).any(axis=1)) for row in (5, 6, 7, 8)] == pytest.approx([0.75] * 4, abs=0.03)
    assert all(set(row[:2]) == {3, 4} and row[2] == -1 for row in drawn[:, 1].tolist())
    one = np.stack([draw(MINED, 1, np.random.default_rng(seed))[:, 0] for seed in range(2000)])
    assert [np.mean(one[:, 1] == row) for row in (3, 4)] == pytest.approx([0.5] * 2, abs=0.04)
    assert [set(one[:, query]) for query in (2, 3)] == [{9}, {-1}]
    assert draw(MINED, 9, np.random.default_rng(0)).shape == (4, 4)


@given(st.integers(1, 500), st.integers(2, 80), st.integers(0, 5), st.integers(0, 5))
def test_batches_hold_every_pair_once(pairs, batch_size, seed, epoch):
    found = batches(pairs, batch_size, seed, epoch)
    assert sorted(np.concatenate(found).tolist()) == list(range(pairs))
    sizes = [len(rows) for rows in found]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= batch_size
    assert len(found) == -(-pairs // batch_size)


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=40)


@given(PAIRS, st.lists(st.integers(0, 9), min_size=10, max_size=10))
def test_known_is_a_set_of_pairs_and_of_copies_of_answers(pairs, same):
    """Document n has the vector of direction same[n]; a copy is embedded in another batch, so its last bits differ."""
    vectors = np.eye(10, dtype=np.float32)
    document_NM = vectors[same] + np.float32(1e-7) * np.arange(10, dtype=np.float32)[:, None]
    known = Examples(vectors[:7], document_NM, np.array(pairs)).known()
    found = known(np.arange(7)[:, None], np.arange(10)[None, :])
    wanted = {(query, other) for query, document in pairs for other in range(10) if same[other] == same[document]}
    assert {tuple(place) for place in np.argwhere(found).tolist()} == wanted
    apart = {(query, same[document]) for query, document in pairs}
    assert known.most() == max(sum(query == own for own, _ in apart) for query, _ in apart)
