"""Training of a cross-encoder: the order in which an epoch reads its pairs."""

from unittest.mock import MagicMock

import numpy as np
import pytest

from rayhier.model.cross_encoder import load_cross_encoder
from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.train.cross_encoder import phase as module
from rayhier.train.cross_encoder.groups import TrainingGroup
from rayhier.train.cross_encoder.phase import Reading

GROUP = TrainingGroup("leaf", ["root", "branch"], np.zeros(2, np.float32))


@pytest.fixture
def orders(tiny_model, monkeypatch):
    """`orders(seed=0)`: the pairs, of twelve, in the order of each of two epochs."""

    def read(seed=0):
        drawn = []
        pairs = MagicMock(
            __len__=lambda _: 12, draw=lambda pair_G, _: drawn.extend(pair_G.tolist()) or [GROUP] * len(pair_G)
        )
        monkeypatch.setattr(module, "SEED", seed)
        model = load_cross_encoder(tiny_model, "cls", seed=0)
        phase = Reading(model, pairs, CrossEncoderSpec(model="tiny", max_length=8), 2, lambda _: {})
        phase.run_pass(0)
        first = len(drawn)
        phase.run_pass(1)
        return drawn[:first], drawn[first:]

    return read


def test_an_epoch_reads_every_pair_once_in_an_order_of_its_own_or_a_part_of_many(orders, monkeypatch):
    first, second = orders()
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert orders() == (first, second)
    assert orders(seed=1)[0] != first
    monkeypatch.setattr(module, "MOST_PAIRS", 5)
    first, second = orders()
    assert len(set(first)) == len(set(second)) == 5
    assert set(first) != set(second)
