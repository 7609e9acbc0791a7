"""What a router is taught, pair by pair."""

from collections import Counter

import numpy as np
import pytest

from rayhier.spec.router import Teaching
from rayhier.train.examples import Examples
from rayhier.train.learned_ivf.lessons import DOCUMENTS_A_QUERY, Lessons

N, Q, M = 130, 5, 6


def unit(rng, *shape):
    vectors = rng.normal(size=shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def vectors():
    rng = np.random.default_rng(0)
    return unit(rng, Q, M), unit(rng, N, M)


def examples(vectors, pairs):
    return Examples(*vectors, np.array(pairs))


def near(vector, documents, count):
    return np.argsort(-(documents @ vector))[:count].tolist()


def weights(lessons):
    """(lesson, document) -> its weights, one for each reason."""
    found = {}
    for (lesson, row), weight in zip(lessons.pair_P2.tolist(), lessons.weight_P.tolist(), strict=True):
        found.setdefault((lesson, row), []).append(pytest.approx(weight))
    return {pair: sorted(values, key=lambda value: value.expected) for pair, values in found.items()}


PAIRS = [(3, 8), (0, 5), (1, 6), (1, 7), (2, 9), (4, 2)]


def test_judged_and_nearest_documents_are_a_querys_answers(vectors):
    spec = Teaching(neighbours=4, judged=3.0, documents=0.0)
    lessons = Lessons.of(examples(vectors, PAIRS), *vectors, spec, 0)
    assert np.array_equal(lessons.vector_TM, vectors[0])
    wanted = {pair: [3.0] for pair in PAIRS}
    for query in range(Q):
        for row in near(vectors[0][query], vectors[1], 4):
            wanted[query, row] = [1.0, *wanted.get((query, row), [])]
    assert weights(lessons) == wanted
    assert (np.diff(lessons.pair_P2[:, 0]) >= 0).all()


@pytest.mark.parametrize("neighbours", [0, 1, 4])
def test_documents_ask_for_themselves_and_theirs(vectors, neighbours):
    spec = Teaching(neighbours=neighbours, documents=0.1, most=20)
    lessons = Lessons.of(examples(vectors, PAIRS), *vectors, spec, 0)
    assert lessons.vector_TM.shape == (Q + 20, M)
    rows = [near(vector, vectors[1], 1)[0] for vector in lessons.vector_TM[Q:]]
    assert len(set(rows)) == 20
    np.testing.assert_array_equal(lessons.vector_TM[Q:], vectors[1][rows])
    found = {pair: values for pair, values in weights(lessons).items() if pair[0] >= Q}
    answers = [
        (Q + n, answer)
        for n, row in enumerate(rows)
        for answer in near(vectors[1][row], vectors[1], max(1, neighbours))
    ]
    assert found == {pair: [0.1] for pair in answers}


def test_a_copy_asks_for_itself_though_its_copies_are_as_near(vectors):
    documents = np.repeat(vectors[1][:1], 40, axis=0)
    lessons = Lessons.of(examples((vectors[0], documents), PAIRS), vectors[0], documents, Teaching(neighbours=3), 0)
    asked = {tuple(pair) for pair in lessons.pair_P2.tolist()}
    rows = np.random.default_rng([0, 2]).permutation(40)
    assert {(Q + place, row) for place, row in enumerate(rows.tolist())} <= asked


def test_most_bounds_the_documents_and_a_seed_draws_them(vectors):
    def drawn(seed, most=20):
        spec = Teaching(most=most)
        return Lessons.of(examples(vectors, PAIRS), *vectors, spec, seed).vector_TM[Q:].tolist()

    assert drawn(0) == drawn(0) != drawn(1)
    assert len(drawn(0, most=1000)) == DOCUMENTS_A_QUERY * Q < N


def test_a_query_with_a_hundred_answers_weighs_as_ten(vectors):
    pairs = [(0, row) for row in range(100)] + [(1, row) for row in range(10)] + [(2, 0), (3, 0), (4, 0)]
    lessons = Lessons.of(examples(vectors, pairs), *vectors, Teaching(neighbours=0, judged=3.0, documents=0.0), 0)
    totals = Counter()
    for (lesson, _), weight in zip(lessons.pair_P2.tolist(), lessons.weight_P.tolist(), strict=True):
        totals[lesson] += weight
    assert totals == {0: pytest.approx(30), 1: pytest.approx(30), 2: 3, 3: 3, 4: 3}


def test_more_neighbours_than_documents(vectors):
    few = vectors[0], vectors[1][:3]
    lessons = Lessons.of(examples(few, [(0, 1)]), *few, Teaching(neighbours=10), 0)
    assert Counter(lessons.pair_P2[:, 0].tolist()) == {0: 4, **dict.fromkeys(range(1, Q + 3), 3)}


def test_asked_queries_are_worth_the_same(vectors):
    lessons = Lessons.judged(vectors[0], np.array([(3, 8), (1, 5), (3, 2), (3, 4), (1, 0)]))
    third = pytest.approx(1 / 3)
    assert weights(lessons) == {(1, 5): [0.5], (1, 0): [0.5], (3, 8): [third], (3, 2): [third], (3, 4): [third]}
    assert lessons.pair_P2[:, 0].tolist() == [1, 1, 3, 3, 3]


def test_nothing_is_what_other_workers_have():
    lessons = Lessons.none(M)
    assert (lessons.vector_TM.shape, lessons.pair_P2.shape, lessons.weight_P.shape) == ((0, M), (0, 2), (0,))
