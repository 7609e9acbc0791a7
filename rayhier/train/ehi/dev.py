"""Measures an EHI index on dev queries, to pick the best epoch: recall where few documents are visited."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from rayhier.arrays import Values
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.train.dev import DEPTH, DevJudge, Measured
from rayhier.train.ehi.joint import Snapshot

VISITED = (0.05, 0.1, 0.2)
MEASURES = ("R@10", "R@100")


class DevMeasure:
    """Measures an index on dev queries: recall where 5, 10 and 20% of the documents are visited."""

    def __init__(self, queries: Queries, result_ids: Sequence[str], answers: Collection[str] = ()) -> None:
        self.result_ids = pa.array(result_ids, pa.string())
        self.judge = DevJudge(queries, MEASURES, answers)

    def __call__(self, now: Snapshot) -> Measured:
        """Compute R@10 and R@100 at 5, 10 and 20% visited, over all queries and over those with new answers, if any.

        The recall at a share visited is interpolated between beams, by the share that each beam visits on average.
        """
        # Curves begin at (0, 0): a collapsed index cannot visit so few documents, and is interpolated from there.
        visited: list[float] = [0.0]
        curve = [Measured({}, np.zeros(len(now.dev_QM)))]
        for beam in doublings(now.router.n_leaves):
            leaves_QB = now.leaves(now.dev_QM, beam)
            visited_Q = now.lists.count(leaves_QB)[0]
            ranking = whole_scan(*now.lists.scan(now.dev_QM, leaves_QB, DEPTH), self.result_ids, visited_Q)
            visited.append(float(visited_Q.mean()) / now.lists.documents)
            curve.append(self.judge.measured(ranking))
            if visited[-1] >= max(VISITED):
                break
        # A taller tree's beams are not nested: a wider one may visit a little less.
        order = np.argsort(visited, kind="stable")
        at = np.array(visited)[order]

        def read(values: Sequence[float] | Values, share: float) -> float:
            return float(np.interp(share, at, np.asarray(values)[order]))

        values = {
            f"{measure}@{share:.0%}": read([point.values.get(measure, 0.0) for point in curve], share)
            for measure in curve[-1].values
            for share in VISITED
        }
        share_BQ = np.stack([point.share_Q for point in curve])
        return Measured(
            values, np.array([np.mean([read(share_B, share) for share in VISITED]) for share_B in share_BQ.T])
        )


def doublings(leaves: int) -> list[int]:
    """List the beams that are measured each time: powers of two, then all leaves.

    >>> doublings(40)
    [1, 2, 4, 8, 16, 32, 40]
    """
    return [*(1 << power for power in range((leaves - 1).bit_length())), leaves]
