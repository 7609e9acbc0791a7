"""The contrast on a small problem: what it learns, what its negatives are, and how it goes on."""

import numpy as np
import pytest
import torch

from rayhier.dataset.documents import Documents
from rayhier.model.encoder import ResidualHead
from rayhier.spec.train import ContrastTraining
from rayhier.train.contrast import Contrast
from rayhier.train.dev_measures import DevMeasured, ExactMeasure
from rayhier.train.loop import best_row
from rayhier.train.tower import HeadTower

from ..conftest import Problem
from ..driver import Driver, run

RATE = 0.01


def spec(epochs=4, batch_size=16, anchor=0.0, **hard):
    given = {"epochs": epochs, "batch_size": batch_size, "encoder_lr": RATE, "temperature": 0.1, "anchor": anchor}
    one = {"per_query": 1} if hard.get("source") != "none" else {}
    return ContrastTraining(type="contrast", **given, hard_negatives={**one, **hard})


def build(problem, train=None, seed=0, measure=None):
    tower = HeadTower(ResidualHead(problem.documents.shape[1]), problem.stored(), torch.device("cpu"))
    return Driver(Contrast(tower, problem.examples(), None, train or spec(), seed, measure or problem.exact()))


def test_dev_weighs_queries_with_new_answers_too(problem):
    documents = Documents(problem.ids, problem.documents)
    seen = problem.dev[::3]
    measure = ExactMeasure(problem.dev_queries(), documents, {problem.ids[row] for row in seen})
    measured = measure(problem.documents, problem.queries[problem.dev])
    found = measured.values
    place = np.argmax(np.argsort(-(problem.queries[problem.dev] @ problem.documents.T)) == problem.dev[:, None], axis=1)
    wanted = [np.where(place < 10, 1 / np.log2(place + 2), 0).mean(), np.mean(place < 100)]
    assert [found["nDCG@10"], found["R@100"]] == pytest.approx(wanted)
    others = Problem()
    others.dev = np.setdiff1d(problem.dev, seen)
    new = ExactMeasure(others.dev_queries(), documents)(problem.documents, problem.queries[others.dev]).values
    assert [found[f"{name} new"] for name in ("nDCG@10", "R@100")] == [new[name] for name in ("nDCG@10", "R@100")]
    assert found["nDCG@10 new"] != found["nDCG@10"]
    assert measured.dev == pytest.approx(np.mean(list(found.values())))
    assert measured.share_Q.mean() == pytest.approx(measured.dev)


def test_an_epoch_not_behind_the_best_is_kept_for_a_later_one(problem):
    """Four dev queries: what the third epoch loses one query and wins another is within its error, the last is not."""
    shares = iter(np.array([[0.1] * 4, [0.5] * 4, [0.9, 0.1, 0.5, 0.4], [0.3, 0.3, 0.3, 0.2]]))

    def measure(*_):
        own = next(shares)
        return DevMeasured({"R@100": float(own.mean())}, own)

    contrast = run(build(problem, spec(epochs=3), measure=measure))
    errors = [row["error"] for row in contrast.history]
    assert errors == pytest.approx([0, 0, np.std([0.4, -0.4, 0, -0.1]) / 2, np.std([-0.2, -0.2, -0.2, -0.3]) / 2])
    assert best_row(contrast.history)["epoch"] == 2


def test_the_anchor_by_hand(problem):
    """Twice the mean of 1 - cosine; a head that turns everything around is as far as can be."""
    contrast = build(problem, spec(anchor=2.0))
    with torch.no_grad():
        contrast.tower.module.weight.copy_(-2 * torch.eye(problem.documents.shape[1]))
    assert contrast.take(contrast.anchors(8, np.random.default_rng(3))).item() == pytest.approx(2 * 2)
