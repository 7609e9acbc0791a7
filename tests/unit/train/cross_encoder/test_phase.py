"""Training of a cross-encoder: the order in which an epoch reads its pairs, and re-ranking on dev."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import ID, Ranking
from rayhier.model.cross_encoder import load_cross_encoder
from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.train.cross_encoder import phase as module
from rayhier.train.cross_encoder.groups import TrainingGroup
from rayhier.train.cross_encoder.phase import DevReranking, Reading


class Pairs:
    """A corpus of so many judged pairs, which notes in which order groups are drawn for them."""

    def __init__(self, count):
        self.count, self.drawn = count, []

    def __len__(self):
        return self.count

    def draw(self, pair_G, generator):
        self.drawn += pair_G.tolist()
        return [TrainingGroup("leaf", ["root", "branch"], np.zeros(2, np.float32)) for _ in pair_G]


@pytest.fixture
def orders(tiny_model, monkeypatch):
    """`orders(seed=0)`: the pairs in the order of each of two epochs."""

    def read(seed=0):
        pairs = Pairs(12)
        monkeypatch.setattr(module, "SEED", seed)
        model = load_cross_encoder(tiny_model, "cls", seed=0)
        phase = Reading(model, pairs, CrossEncoderSpec(model="tiny", max_length=8), 2, lambda _: {})
        epochs = []
        for epoch in range(2):
            phase.run_pass(epoch)
            epochs.append(pairs.drawn)
            pairs.drawn = []
        return epochs

    return read


def test_an_epoch_reads_every_pair_once_in_an_order_of_its_own_or_a_part_of_many(orders, monkeypatch):
    first, second = orders()
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert orders() == [first, second]
    assert orders(seed=1)[0] != first
    monkeypatch.setattr(module, "MOST_PAIRS", 5)
    first, second = orders()
    assert len(set(first)) == len(set(second)) == 5
    assert set(first) != set(second)


@pytest.fixture
def rerank():
    """Two queries: the answer of one is the base's last document, the other has one document, which is its answer."""
    zero_Q = np.zeros(2, np.int64)
    documents = pa.table({ID: pa.array(["a", "b", "c"])})
    score_QK = np.array([[0.9, 0.8, 0.5], [0.7, -np.inf, -np.inf]], np.float32)
    base = Ranking(score_QK, np.array([[0, 1, 2], [1, -1, -1]]), documents, zero_Q, zero_Q, zero_Q)
    grades = {"x": {"c": 1}, "y": {"b": 1}}
    queries = Queries(["x", "y"], np.zeros((2, 4), np.float32), grades, ["text x", "text y"])
    return DevReranking(queries, base, lambda row_U: [f"document {row}" for row in row_U])


def third(score):
    return lambda pairs: np.array([{"document 2": score}.get(text, 0.0) for _, text in pairs], np.float32)


@pytest.mark.parametrize(("score", "expected"), [(1.0, 1.0), (-1.0, (1 / np.log2(4) + 1) / 2)])
def test_documents_are_ordered_by_score(score, expected, rerank):
    assert rerank.measured(rerank.scores(third(score))) == pytest.approx(expected)
