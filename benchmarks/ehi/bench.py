"""SciFact under the base encoder, and what every test query finds by a row's encoder and leaves, beside k-means."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import cache
from benchmarks.answers import twins
from benchmarks.collection import Collection
from benchmarks.ehi.rates import Rates, choose
from benchmarks.ehi.rows import Row
from benchmarks.quality.systems import columns, in_leaves, placed
from benchmarks.quality.view import Places, Questions, Relevance
from benchmarks.statistics import Curve, recall_at
from benchmarks.training import encode, train
from rayhier.arrays import Bools, Floats, Ints, Values
from rayhier.cluster.kmeans import leaf_means, nearest, spherical_kmeans
from rayhier.dataset.families import families
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import load_answers, new_answers, relevant
from rayhier.dataset.words import words
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.router import route_all
from rayhier.model.spill import CANDIDATES
from rayhier.search.exact import exact
from rayhier.search.lists import LeafLists
from rayhier.train.ehi.joint import Joint
from rayhier.train.loop import best_row

SHARES = (0.05, 0.1, 0.2)
"""Shares of the documents, all visited, at which R@100 is read."""
MEASURES = ("R@10", "R@100")
DEPTH = 100
NEW, TWINS = "new answers", "near-twins of train queries"


@dataclass(frozen=True)
class Found:
    """What a row measured, with every seed."""

    row: Row
    seeds: list[Mapping[str, Values]]
    """Of each seed R@100 of every query [s, q] at shares of the documents, by `ehi` and by `ivf`; exact R@10 and R@100
    [q]; the imbalance and the number of empty leaves, and the epoch that was kept; and over epochs [e, 3] the number,
    the imbalance and dev."""

    def recall(self, system: str, share: float) -> Values:
        """R@100 [s, q] of seeds and queries at a share visited; NaN where the smallest beam visits more."""
        return np.stack([seed[system][SHARES.index(share)] for seed in self.seeds])

    def exact(self, measure: str) -> Values:
        """A measure [s, q] of exact search with the trained encoder."""
        return np.stack([seed[measure] for seed in self.seeds])

    def number(self, name: str) -> list[float]:
        """A number of each seed."""
        return [float(seed[name]) for seed in self.seeds]


class Bench:
    """SciFact under the base encoder, and what the ablations measure on it; what is measured is kept in `workdir`."""

    def __init__(self, workdir: Path) -> None:
        self.collection = Collection("scifact", workdir)
        self.ids = pa.array(self.collection.documents.ids, pa.string())
        self.test = self.collection.queries("test")
        self.questions = Questions.of(self.test, self.collection.documents.ids)
        self.judge = Judge(self.test, MEASURES)
        self.results = workdir.absolute() / "results"

    @cached_property
    def groups(self) -> dict[str, Bools]:
        """Name of a group of test queries -> which are in it [q]."""
        train_answers, dev_answers = (load_answers(self.collection.corpus, split) for split in ("train", "dev"))
        near_Q = twins(self.test, list(self.collection.queries("train").texts))
        return {
            "all": np.ones(len(self.test), dtype=bool),
            NEW: new_answers(self.test, train_answers),
            "new answers, dev's known": new_answers(self.test, train_answers | dev_answers),
            TWINS: near_Q,
            "no near-twin": ~near_Q,
        }

    @cached_property
    def family(self) -> Ints:
        """Family [q] of each test query: those that share an answer or half of their words."""
        answers = [relevant(self.test.grades[query]) for query in self.test.ids]
        return families([words(text) for text in self.test.texts], answers)

    @cached_property
    def untrained(self) -> dict[str, Values]:
        """Measures [q] of exact search with the encoder that nothing trained."""
        return self.judge.values(exact(self.test.vector_QM, self.collection.documents.vector_NM, *self._exact))

    @property
    def _exact(self) -> tuple[pa.Array, pa.Array, int]:
        return self.ids, self.ids, DEPTH

    def rates(self, row: Row) -> Rates:
        """Learning rates that folds of the train queries choose for a row's router."""
        return choose(self.collection, row, self.results)

    def found(self, row: Row, seeds: int) -> Found:
        """What a row measures with every seed, now or in an earlier run."""
        own = self.with_rates(row)
        return Found(own, [self.values(own, seed) for seed in range(seeds)])

    def with_rates(self, row: Row) -> Row:
        """A row with the rates that are chosen for it, if they are to be."""
        return replace(row, train={**row.train, **self.rates(row).chosen}) if row.tuned else row

    def values(self, row: Row, seed: int) -> dict[str, Values]:
        """What a row measures with one seed, now or in an earlier run."""
        key = cache.key(row.routing.model_dump(), row.training.model_dump(), row.second, seed)
        return cache.kept(self.results / f"{key}.npz", lambda: self.measure(row, seed))

    def trained(self, row: Row, seed: int) -> "Trained":
        """A row's encoder and router, trained now."""
        joint = self.collection.joint(self.collection.examples, row.routing, row.training, seed)
        history = train(joint).history
        return Trained(joint, encode(joint.tower.module, self.test.vector_QM), history)

    def measure(self, row: Row, seed: int) -> dict[str, Values]:
        """Train, and read the test split once."""
        own = self.trained(row, seed)
        document_NM, query_QM, leaves = own.documents, own.query_QM, own.router.n_leaves
        count = min(CANDIDATES, leaves)
        routed_NC = route_all(own.router, Encoded.of(document_NM), 1 if row.second is None else count)[0].numpy()
        means_LM = leaf_means(document_NM, routed_NC[:, 0], leaves)
        centroid_LM = spherical_kmeans(document_NM, leaves, seed)
        near_NC, order_QL = nearest(document_NM, centroid_LM, count)[0], nearest(query_QM, centroid_LM, leaves)[0]
        relevance = Relevance(self.questions, query_QM, document_NM)

        def recalls(leaf_NC: Ints, centroid_LM: Floats, probe: Callable[[int], Ints]) -> Values:
            places = Places(placed(document_NM, leaf_NC, centroid_LM, row.second), leaves)
            return at_shares(Curve.read(columns(in_leaves(places, relevance, probe, lambda _: 0.0))))

        best = best_row(own.history)
        return {
            "ehi": recalls(routed_NC, means_LM, own.leaves),
            "ivf": recalls(near_NC, centroid_LM, lambda beam: order_QL[:, :beam]),
            **self.judge.values(exact(query_QM, document_NM, *self._exact)),
            **{name: np.array(best[name]) for name in ("imbalance", "empty", "epoch")},
            "over_epochs": np.array([[past["epoch"], past["imbalance"], past["dev"]] for past in own.history]),
        }


@dataclass(frozen=True)
class Trained:
    """Encoder and router after a training, and the test queries as the encoder maps them."""

    joint: Joint
    query_QM: Floats
    history: list[dict[str, float]]

    @property
    def router(self) -> EhiRouter:
        """The router."""
        return self.joint.router

    @property
    def documents(self) -> Floats:
        """Trained vectors of the documents."""
        return self.joint.snapshot().document_NM

    @property
    def lists(self) -> LeafLists:
        """The documents in their leaves."""
        return self.joint.snapshot().lists

    def leaves(self, beam: int) -> Ints:
        """Leaves [q, beam] that the test queries visit."""
        return self.joint.snapshot().leaves(self.query_QM, beam)


def at_shares(curve: Curve) -> Values:
    """R@100 [s, q] of every query at the shares that all visit on average, interpolated.

    NaN where the smallest beam visits more.
    """
    visited_PQ = np.repeat(curve.visited_PQ.mean(axis=1, keepdims=True), len(curve.exact_Q), axis=1)
    return recall_at(replace(curve, visited_PQ=visited_PQ), SHARES, weight_RQ=np.eye(len(curve.exact_Q))).T
