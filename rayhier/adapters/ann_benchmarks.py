"""An index of vectors as ann-benchmarks measures it: `rayhier[ann-benchmarks]` has what its runner imports.

The `config.yml` and the module for a checkout of ann-benchmarks are in benchmarks/neighbours/ann_benchmarks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rayhier.adapters.vectors import RunnerReports, VectorIndex
from rayhier.arrays import Ints

try:
    from ann_benchmarks.algorithms.base.module import BaseANN
except ModuleNotFoundError as error:
    where = "in a checkout of ann-benchmarks, where pip install 'rayhier[ann-benchmarks]' brings what it imports"
    raise ModuleNotFoundError(f"{error.name} is not there; allowed: {where}", name=error.name) from error


class RayhierANN(RunnerReports, BaseANN):
    """Leaves of k-means. OMP_NUM_THREADS=1 limits it to one thread, as Docker does."""

    def __init__(self, metric: str, count: int, sections: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the metric, the usual number of results, and sections of a spec: `router`, `index`.

        InputError names a metric that is not served, or a key that is not allowed.
        """
        self._index, self._said = VectorIndex(metric, count, sections), [dict(sections)]
        self._found: Ints = np.empty((0, count), np.int64)

    def fit(self, X: npt.NDArray[Any]) -> None:
        """Index vectors [n, m], whose numbers are their rows."""
        self._index.put(range(len(X)), X)

    def set_query_arguments(self, search: Mapping[str, Any]) -> None:
        """Search as a spec's section `search` says. InputError names a key that is not allowed."""
        self._index.search_as(search)
        self._said[1:] = [dict(search)]

    def query(self, q: npt.NDArray[Any], n: int) -> list[int]:
        """Find the numbers of the n nearest vectors of a query [m], nearest first."""
        return _there(self._index.search(q[None], n)[0])

    def batch_query(self, X: npt.NDArray[Any], n: int) -> None:
        """Find the n nearest vectors of each query [q, m], all at once, for `get_batch_results`."""
        self._found = self._index.search(X, n)

    def get_batch_results(self) -> list[list[int]]:
        """Return the numbers that `batch_query` found for each query."""
        return [_there(number_K) for number_K in self._found]


def _there(number_K: Ints) -> list[int]:
    numbers: list[int] = number_K[number_K >= 0].tolist()
    return numbers
