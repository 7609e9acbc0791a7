"""One thread: steps this small spend longer waiting for a second one than computing, on a busy machine above all.

And one small problem, which every kind of training can learn.
"""

import numpy as np
import pytest

from rayhier.dataset.documents import Documents
from rayhier.dataset.queries import Queries
from rayhier.threads import threads
from rayhier.train.dev_measures import DevMeasured, ExactMeasure
from rayhier.train.ehi import DevMeasure
from rayhier.train.examples import Examples

N, M, SIGNAL = 240, 16, 8


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    with threads(1):
        yield


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class Problem:
    """A query and its document agree on the first eight coordinates; the other eight are noise in both."""

    def __init__(self):
        rng = np.random.default_rng(0)
        signal = rng.normal(size=(N, SIGNAL))
        self.documents = unit(np.hstack([signal, 1.5 * rng.normal(size=(N, M - SIGNAL))]))
        near = signal + 0.1 * rng.normal(size=signal.shape)
        self.queries = unit(np.hstack([near, 1.5 * rng.normal(size=signal.shape)]))
        self.train, self.dev = np.arange(0, N, 2), np.arange(1, N, 2)
        self.ids = [f"d{row}" for row in range(N)]

    def examples(self):
        pairs = [*enumerate(self.train), *((n, self.train[n + 1]) for n in range(0, len(self.train) - 1, 10))]
        return Examples(self.queries[self.train], self.documents, np.array(pairs))

    def stored(self):
        examples = self.examples()
        return {"query": examples.query_QM, "document": examples.document_NM, "dev": self.queries[self.dev]}

    def dev_queries(self):
        grades = {f"q{row}": {self.ids[row]: 1} for row in self.dev}
        return Queries(list(grades), self.queries[self.dev], grades)

    def measure(self):
        return DevMeasure(self.dev_queries(), self.ids)

    def exact(self):
        return ExactMeasure(self.dev_queries(), Documents(self.ids, self.documents))


def told(devs):
    rest = iter(devs)
    return lambda *_: one_query(next(rest))


def one_query(value):
    return DevMeasured({"R@100": value}, np.array([value], dtype=float))


@pytest.fixture(scope="session")
def problem():
    return Problem()
