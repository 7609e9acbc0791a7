"""Scores of recent pairs: which ones stay."""

from rayhier.model.cross_encoder import load_cross_encoder, save_cross_encoder
from rayhier.scores import scorer as scoring
from rayhier.scores.scorer import PairScorer
from rayhier.spec.cross_encoder import CrossEncoderSpec


def test_the_pair_that_was_asked_for_longest_ago_goes(tiny_model, tmp_path, monkeypatch):
    save_cross_encoder(load_cross_encoder(tiny_model, "cls", seed=3), 16, tmp_path)
    monkeypatch.setattr(scoring, "KEPT", 2)
    scorer = PairScorer(tmp_path, CrossEncoderSpec(model=str(tmp_path), max_length=16, precision="float32"))
    for names, scored in (("a", 1), ("b", 2), ("a", 2), ("c", 3), ("ac", 3), ("b", 4)):
        scorer(["leaf"] * len(names), list(names))
        assert scorer.scored == scored
