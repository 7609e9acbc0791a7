"""Scores of recent pairs: which ones stay."""

import pytest

from rayhier.model.cross_encoder import load_cross_encoder, save_cross_encoder
from rayhier.scores import scorer as scoring
from rayhier.scores.scorer import PairScorer
from rayhier.spec.cross_encoder import CrossEncoderSpec


@pytest.fixture
def reads(tiny_model, tmp_path, monkeypatch):
    """`reads("ab")`: score these pairs, each named by a letter; returns the number that the model had to read.

    Scores of two pairs are kept.
    """
    save_cross_encoder(load_cross_encoder(tiny_model, "cls", seed=3), 16, tmp_path)
    monkeypatch.setattr(scoring, "KEPT", 2)
    scorer = PairScorer(tmp_path, CrossEncoderSpec(model=str(tmp_path), max_length=16, precision="float32"))

    def read(names):
        before = scorer.scored
        scorer(["leaf"] * len(names), list(names))
        return scorer.scored - before

    return read


def test_the_pair_that_was_asked_for_longest_ago_goes(reads):
    assert [reads(name) for name in "aba"] == [1, 1, 0]
    assert reads("c") == 1
    assert reads("ac") == 0
    assert reads("b") == 1
