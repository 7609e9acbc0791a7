"""Training of a cross-encoder: the order in which an epoch reads its pairs."""

import numpy as np
import pytest

from rayhier.model.cross_encoder import load_cross_encoder
from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.train.cross_encoder.groups import TrainingGroup
from rayhier.train.cross_encoder.phase import Reading, Recipe


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
def orders(tiny_model):
    def read(seed, sizes=(12,), **own):
        corpora = [Pairs(count) for count in sizes]
        training = Recipe(epochs=2, batch_size=12, seed=seed, **own)
        model = load_cross_encoder(tiny_model, "cls", seed=0)
        phase = Reading(model, corpora, CrossEncoderSpec(model="tiny", max_length=8), training, lambda _: {})
        epochs = []
        for epoch in range(2):
            phase.run_pass(epoch)
            epochs.append([corpus.drawn for corpus in corpora])
            for corpus in corpora:
                corpus.drawn = []
        return epochs

    return read


def test_an_epoch_reads_every_pair_once_in_an_order_of_its_own(orders):
    (first,), (second,) = orders(seed=0)
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second


def test_the_order_follows_from_the_seed(orders):
    assert orders(seed=0) == orders(seed=0)
    assert orders(seed=0)[0] != orders(seed=1)[0]


def test_an_epoch_reads_its_own_part_of_a_large_corpus(orders):
    (first, few), (second, again) = orders(seed=0, sizes=(12, 3), most_pairs=5)
    assert len(set(first)) == len(set(second)) == 5
    assert set(first) != set(second)
    assert sorted(few) == sorted(again) == [0, 1, 2]
