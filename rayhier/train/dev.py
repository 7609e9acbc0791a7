"""The queries a run is tuned on, and the measure that picks the best epoch."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rayhier.evaluate.balance import balance
from rayhier.evaluate.curve import Point, System, measure_at, read
from rayhier.evaluate.data import Documents
from rayhier.evaluate.found import Found, scan
from rayhier.evaluate.measures import Judge, Queries
from rayhier.evaluate.part import Part
from rayhier.storage.columns import Floats
from rayhier.train.trainer import Snapshot

MEASURES = ("R@10", "R@100")
VISITED = (0.05, 0.1, 0.2)
DEPTH = 100
# Where a curve begins: an index that cannot visit as little as asked, a collapsed one, is read on the line from here.
NOTHING = Point(0, 0.0, 0.0, 0.0, 0.0, dict.fromkeys(MEASURES, 0.0))


class ExactMeasure:
    """Dev measures of an encoder: recall of an exact search, no index in sight."""

    def __init__(self, queries: Queries, documents: Documents) -> None:
        self.judge = Judge(queries, MEASURES)
        self.ids, self.results = (pa.array(names, pa.string()) for names in (documents.ids, documents.results))

    def __call__(self, document_NM: Floats, dev_QM: Floats) -> dict[str, float]:
        """`dev`: the mean of R@10 and R@100, each beside it."""
        ranking = Part(self.ids, self.results, document_NM).exact(dev_QM, DEPTH).ranking
        values = self.judge.mean(ranking)
        return {"dev": float(np.mean(list(values.values()))), **values}


class DevMeasure:
    """Dev measures of an index: recall at 5, 10 and 20% visited, and how evenly documents lie in leaves."""

    def __init__(self, queries: Queries, result_ids: Sequence[str]) -> None:
        self.result_ids = np.array(result_ids, dtype=object)
        self.judge = Judge(queries, MEASURES)

    def __call__(self, now: Snapshot) -> dict[str, float]:
        """`dev`: the mean of R@10 and R@100 over 5, 10 and 20% visited, each beside it; imbalance; empty leaves."""

        def search(beam: int) -> Found:
            return scan(now.lists, self.result_ids, now.dev_QM, now.leaves(now.dev_QM, beam), DEPTH)

        system = System("dev", now.lists.documents, doublings(now.router.n_leaves), search, lambda _: 0.0)
        curve = [NOTHING]
        for beam in system.beams:
            curve.append(measure_at(system, self.judge, beam)[0])
            if curve[-1].visited_mean >= max(VISITED):
                break
        values = {f"{measure}@{share:.0%}": read(curve, share, measure) for measure in MEASURES for share in VISITED}
        return {"dev": float(np.mean(list(values.values()))), **values, **balance(now.lists.sizes)}


def doublings(leaves: int) -> list[int]:
    """Beams sparse enough to be measured every epoch.

    >>> doublings(40)
    [1, 2, 4, 8, 16, 32, 40]
    """
    return [*(1 << power for power in range((leaves - 1).bit_length())), leaves]
