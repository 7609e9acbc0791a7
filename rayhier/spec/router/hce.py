"""`router: {type: hce}`: leaves are nodes of the tree that HCE trains with (our addition; the paper discards it)."""

from typing import Literal

from rayhier.spec.router.common import Routing


class HceRouting(Routing):
    """HCE's router: leaves are the lowest nodes in HCE's loss; a text goes to the nodes with nearest centroids."""

    type: Literal["hce"]
