"""`router: {type: hce}`: leaves are nodes of HCE's training tree (our addition, as the paper discards the tree)."""

from typing import Literal

from rayhier.spec.router.common import Routing


class HceRouting(Routing):
    """HCE's router: leaves are the lowest nodes in HCE's loss. A text goes to the nodes with the nearest centroids."""

    type: Literal["hce"]
