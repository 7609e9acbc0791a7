"""A spec, and an evaluation of two seeds with numbers easy to check."""

from dataclasses import replace

import numpy as np
import pytest

from rayhier.evaluate import significance
from rayhier.evaluate.curve import Point
from rayhier.evaluate.evaluation import Evaluation, SeedResult

from ...toys import job

MEASURES = ("nDCG@10", "R@10", "R@100")


@pytest.fixture
def spec():
    search = {"k": 10, "beam": 2, "mode": "dense"}
    return job(name="fake", router={"type": "ehi"}, search=search, evaluate={"measures": MEASURES, "seeds": [3, 5]})


def point(beam, visited, value):
    measures = {"nDCG@10": value, "R@10": value / 2, "R@100": value / 4}
    return Point(beam, visited, visited + 0.05, visited + 0.01, float(beam), measures, queries(measures))


def row(point):
    return {**point.measures, "visited": point.visited_mean, "beam": point.beam, "leaves": point.leaves_mean}


def queries(measures):
    """Two queries about each mean."""
    return {name: np.array([value - 0.05, value + 0.05]) for name, value in measures.items()}


def result(seed, lift):
    return SeedResult(
        seed=seed,
        curves={
            "ehi": [point(1, 0.2, 0.4 + lift), point(2, 0.6, 0.8 + lift), point(3, 1.0, 0.8 + lift)],
            "faiss_ivf": [point(1, 0.3, 0.3), point(2, 1.0, 0.7)],
        },
        rows={
            "exact": {"nDCG@10": 0.7, "R@10": 0.35, "R@100": 0.175 + lift, "visited": 1.0},
            "ehi": row(point(2, 0.6, 0.8 + lift)),
            "faiss_ivf": row(point(2, 1.0, 0.7)),
        },
        values={"exact": queries({"nDCG@10": 0.7, "R@10": 0.35, "R@100": 0.175 + lift})},
        runs={
            "ehi": {"q 1": {"d1": 0.25, "d 2": 0.75}, "q2": {}},
            "faiss_ivf": {"q 1": {"d1": 0.5}},
            "exact": {"q 1": {"d1": 1.0}},
        },
        balance={"leaves": 3, "empty": seed - 3, "imbalance": 1.5 + lift},
        sizes=[5, 3, 2],
        history={
            "encoder": [{"epoch": 0.0, "dev": 0.1}, {"epoch": 1.0, "dev": 0.2 + lift, "loss_total": 0.5}],
            "router": [{"epoch": 0.0, "dev": 0.3}, {"epoch": 2.0, "dev": 0.4 + lift, "loss_total": 2.5}],
        },
        seconds={"ehi": 1.25, "faiss_ivf": 0.5, "exact": 0.25},
    )


@pytest.fixture
def evaluation(monkeypatch):
    """Two queries, each a family; here one family is enough for a star."""
    monkeypatch.setattr(significance, "FEWEST", 1)
    seeds, new_Q = [result(3, 0.0), result(5, 0.1)], np.array([True, True])
    return Evaluation(10, 2, {"faiss_ivf": 2}, seeds, new_Q, np.arange(2), {})


@pytest.fixture
def trained(evaluation):
    """The evaluation with exact search by a trained encoder: better by .1 and .3, the second query has new answers."""
    for one in evaluation.seeds:
        one.values["exact_same_encoder"] = {m: value + np.array([0.1, 0.3]) for m, value in one.values["exact"].items()}
        measures = {m: float(value.mean()) for m, value in one.values["exact_same_encoder"].items()}
        one.rows["exact_same_encoder"] = {**measures, "visited": 1.0}
        one.runs["exact_same_encoder"] = one.runs["exact"]
        one.seconds["exact_same_encoder"] = 0.25
    return replace(evaluation, new_Q=np.array([False, True]))
