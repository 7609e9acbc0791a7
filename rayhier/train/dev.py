"""The measure that picks an encoder's best epoch: recall of an exact search for the dev queries."""

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats
from rayhier.dataset.documents import Documents
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.search.exact import exact

MEASURES = ("R@10", "R@100")
DEPTH = 100


class ExactMeasure:
    """Dev measures of an encoder: recall of an exact search, without an index."""

    def __init__(self, queries: Queries, documents: Documents) -> None:
        self.judge = Judge(queries, MEASURES)
        self.ids, self.results = (pa.array(names, pa.string()) for names in (documents.ids, documents.results))

    def __call__(self, document_NM: Floats, dev_QM: Floats) -> dict[str, float]:
        """`dev`, the mean of R@10 and R@100, and these two."""
        values = self.judge.mean(exact(dev_QM, document_NM, self.ids, self.results, DEPTH))
        return {"dev": float(np.mean(list(values.values()))), **values}
