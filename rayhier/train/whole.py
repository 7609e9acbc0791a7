"""A whole side encoded: every worker its share, the first has it all."""

import numpy as np

from rayhier.storage.columns import Floats
from rayhier.train.group import Group
from rayhier.train.tower import Side, Tower

AT_ONCE = 65_536


def encode_all(tower: Tower, side: Side, dimension: int, group: Group) -> Floats:
    """Trained vectors [n, m] of a side: each worker its share of every stretch; none but on the first."""
    n = tower.size(side)
    found = np.empty((n if group.rank == 0 else 0, dimension), dtype=np.float32)
    for begin in range(0, n, AT_ONCE):
        rows = np.arange(begin, min(begin + AT_ONCE, n))
        shares = group.shares(rows)
        whole = group.join(tower.infer(side, shares[group.rank]), [len(share) for share in shares])
        if group.rank == 0:
            found[rows] = whole.float().cpu().numpy()
    return found
