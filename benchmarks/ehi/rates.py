"""Learning rates of a router's shape, chosen on folds of the train queries; the test split is not read.

The router's rate is chosen first, at the encoder's usual one, then the encoder's: the usual rate and its neighbours on
a ladder, and further ones as long as an end of what was tried is best. Three trainings each learn from two thirds of
the train queries; the other third is asked of the epoch that dev picks, by the measure that picks epochs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import cache
from benchmarks.collection import Collection
from benchmarks.ehi.rows import Row
from benchmarks.training import encode, train
from rayhier.arrays import Bools, Values
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import EhiTraining
from rayhier.train.ehi.dev import DevMeasure
from rayhier.train.examples import Examples

FOLDS, SEED = 3, 0
ROUTER = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
ENCODER = (3.1e-5, 6.2e-5, 1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
"""Rates that may be tried."""


@dataclass(frozen=True)
class Rates:
    """The rates of one router's shape, and what each rate that was tried found."""

    router: dict[float, float]
    """Rate of the router -> mean of the folds, at the encoder's usual rate."""
    encoder: dict[float, float]
    """Rate of the encoder -> mean of the folds, at the router's best rate."""

    @property
    def chosen(self) -> dict[str, float]:
        """The `train` of a spec with the best rates."""
        return {"router_lr": best(self.router), "encoder_lr": best(self.encoder)}


def best(values: dict[float, float]) -> float:
    """The rate that finds most, the smallest of equals."""
    return max(sorted(values), key=lambda rate: values[rate])


def climb(ladder: Sequence[float], start: float, value: Callable[[float], float]) -> dict[float, float]:
    """Values of rates around the best of a ladder: no end of what was tried is best, but an end of the ladder.

    >>> climb((1, 2, 4, 8, 16), 2, lambda rate: -abs(rate - 8))
    {1: -7, 2: -6, 4: -4, 8: 0, 16: -8}
    """
    low = high = ladder.index(start)
    values = {start: value(start)}
    while True:
        top = ladder.index(best(values))
        if top == low > 0:
            low -= 1
            values[ladder[low]] = value(ladder[low])
        elif top == high < len(ladder) - 1:
            high += 1
            values[ladder[high]] = value(ladder[high])
        else:
            return dict(sorted(values.items()))


def choose(collection: Collection, row: Row, results: Path) -> Rates:
    """Choose both rates for a row's router; what was tried is kept."""
    tried = partial(mean_of_folds, collection, row.routing, results=results)

    def at(training: EhiTraining, name: str, rate: float) -> float:
        return tried(training.model_copy(update={name: rate}))

    usual = row.training
    router = climb(ROUTER, usual.router_lr, partial(at, usual, "router_lr"))
    training = usual.model_copy(update={"router_lr": best(router)})
    return Rates(router, climb(ENCODER, usual.encoder_lr, partial(at, training, "encoder_lr")))


def mean_of_folds(collection: Collection, router: EhiRouting, training: EhiTraining, results: Path) -> float:
    """Mean over folds of recall where few documents are visited, R@10 and R@100 at 5, 10 and 20%."""

    def make() -> dict[str, Values]:
        folds = collection.folds(FOLDS)
        return {"folds": np.array([_fold(collection, router, training, *fold) for fold in folds])}

    key = cache.key("rates", router.model_dump(), training.model_dump(), FOLDS, SEED)
    return float(cache.kept(results / f"{key}.npz", make)["folds"].mean())


def _fold(
    collection: Collection, router: EhiRouting, training: EhiTraining, examples: Examples, asked_Q: Bools
) -> float:
    joint = collection.joint(examples, router, training, SEED)
    train(joint)
    asked, ids = collection.queries("train").some(asked_Q), collection.documents.results
    now = replace(joint.snapshot(), dev_QM=encode(joint.tower.module, asked.vector_QM))
    return DevMeasure(asked, ids, examples.answers(ids))(now).dev
