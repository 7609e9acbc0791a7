"""An index of vectors as big-ann-benchmarks' streaming track measures it: `rayhier[big-ann]` has what that imports.

An insertion, deletion or replacement is a version of the index, whose leaves are maintained as a server maintains them.
The `config.yaml` and the module for a checkout of big-ann-benchmarks are in benchmarks/neighbours/big_ann_benchmarks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rayhier.adapters.vectors import RunnerReports, VectorIndex

try:
    from neurips23.streaming.base import BaseStreamingANN
except ModuleNotFoundError as error:
    where = "in a checkout of big-ann-benchmarks, where pip install 'rayhier[big-ann]' brings what it imports"
    raise ModuleNotFoundError(f"{error.name} is not there; allowed: {where}", name=error.name) from error


class RayhierStreamingANN(RunnerReports, BaseStreamingANN):
    """Leaves of k-means, which split as the index grows."""

    def __init__(self, metric: str, count: int, sections: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the metric, the usual number of results, and sections of a spec: `router`, `index`.

        InputError names a metric that is not served, or a key that is not allowed.
        """
        self._made, self._said = (metric, count, sections), [dict(sections)]
        self._index, self.res = VectorIndex(*self._made), np.empty((0, count), np.int64)

    def setup(self, dtype: str, max_pts: int, ndims: int) -> None:
        """Do nothing: the first vectors that are inserted make the leaves."""

    def insert(self, X: npt.NDArray[Any], ids: npt.NDArray[np.uint32]) -> None:
        """Add vectors [n, m] under new numbers [n]. InputError where a number is there already."""
        self._index.put(ids.tolist(), X)

    def delete(self, ids: npt.NDArray[np.uint32]) -> None:
        """Delete the vectors under some numbers. InputError where a number is not there."""
        self._index.delete(ids.tolist())

    def replace(self, X: npt.NDArray[Any], ids: npt.NDArray[np.uint32]) -> None:
        """Put vectors [n, m] in the place of those under numbers [n]."""
        self._index.put(ids.tolist(), X, replaces=True)

    def set_query_arguments(self, query_args: Mapping[str, Any]) -> None:
        """Search as a spec's section `search` says, in an index without vectors: the runner begins its runbook anew.

        InputError names a key that is not allowed.
        """
        self._index.close()
        self._index = VectorIndex(*self._made)
        self._index.search_as(query_args)
        self._said[1:] = [dict(query_args)]

    def query(self, X: npt.NDArray[Any], k: int) -> None:
        """Find the numbers [q, k] of the nearest vectors of each query [q, m], for `get_results`; -1: none."""
        self.res = self._index.search(X, k)
