"""What a router is taught, pair by pair."""

import numpy as np
import pytest

from rayhier.train.examples import Examples
from rayhier.train.learned_ivf import router_phase
from rayhier.train.learned_ivf.router_phase import Targets

from ....draws import unit

N, Q, M = 130, 5, 6


@pytest.fixture
def vectors():
    rng = np.random.default_rng(0)
    return unit(rng, Q, M), unit(rng, N, M)


@pytest.fixture
def taught(vectors, monkeypatch):
    """`taught(pairs, NAME=…)`: the targets, with constants of the teaching."""

    def targets(pairs, documents=vectors[1], **constants):
        for name, value in constants.items():
            monkeypatch.setattr(router_phase, name, value)
        return Targets.of(Examples(vectors[0], documents, np.array(pairs)), vectors[0], documents, 0)

    return targets


def near(vector, documents, count):
    return np.argsort(-(documents @ vector))[:count].tolist()


def weights(targets):
    """(target, document) -> its weights, one for each reason."""
    found = {}
    for (target, row), weight in zip(targets.pair_P2.tolist(), targets.weight_P.tolist(), strict=True):
        found.setdefault((target, row), []).append(pytest.approx(weight))
    return {pair: sorted(values, key=lambda value: value.expected) for pair, values in found.items()}


PAIRS = [(3, 8), (0, 5), (1, 6), (1, 7), (2, 9), (4, 2)]


def test_judged_and_nearest_documents_are_a_querys_answers(vectors, taught):
    targets = taught(PAIRS, NEIGHBOURS=4, JUDGED=3.0, MOST_ASKING=0)
    assert np.array_equal(targets.vector_TM, vectors[0])
    wanted = {pair: [3.0] for pair in PAIRS}
    for query in range(Q):
        for row in near(vectors[0][query], vectors[1], 4):
            wanted[query, row] = [1.0, *wanted.get((query, row), [])]
    assert weights(targets) == wanted
    assert (np.diff(targets.pair_P2[:, 0]) >= 0).all()


@pytest.mark.parametrize("neighbours", [1, 4])
def test_documents_ask_for_themselves_and_theirs(vectors, neighbours, taught):
    targets = taught(PAIRS, NEIGHBOURS=neighbours, MOST_ASKING=20)
    rows = [near(vector, vectors[1], 1)[0] for vector in targets.vector_TM[Q:]]
    assert len(set(rows)) == 20
    np.testing.assert_array_equal(targets.vector_TM[Q:], vectors[1][rows])
    found = {pair: values for pair, values in weights(targets).items() if pair[0] >= Q}
    asked = {Q + n: near(vectors[1][row], vectors[1], neighbours) for n, row in enumerate(rows)}
    assert found == {(target, row): [0.1] for target, answers in asked.items() for row in answers}


def test_a_copy_asks_for_itself_though_its_copies_are_as_near(vectors, taught):
    targets = taught(PAIRS, np.repeat(vectors[1][:1], 40, axis=0), NEIGHBOURS=3)
    rows = np.random.default_rng([0, 2]).permutation(40).tolist()
    assert {(Q + place, row) for place, row in enumerate(rows)} <= {tuple(pair) for pair in targets.pair_P2.tolist()}


def test_a_query_with_a_hundred_answers_weighs_as_ten_and_asked_queries_are_worth_the_same(vectors, taught):
    """In addition, the nearest document of each query weighs one."""
    pairs = [(0, row) for row in range(100)] + [(1, row) for row in range(10)] + [(2, 0), (3, 0), (4, 0)]
    targets = taught(pairs, NEIGHBOURS=1, JUDGED=3.0, MOST_ASKING=0)
    totals = np.bincount(targets.pair_P2[:, 0], targets.weight_P)
    assert totals.tolist() == pytest.approx([31, 31, 4, 4, 4])
    asked = Targets.judged(vectors[0], np.array([(3, 8), (1, 5), (3, 2), (1, 0)]))
    assert weights(asked) == {(1, 5): [0.5], (1, 0): [0.5], (3, 8): [0.5], (3, 2): [0.5]}
    assert asked.pair_P2[:, 0].tolist() == [1, 1, 3, 3]
