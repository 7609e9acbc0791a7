"""Base class of the settings of all routers; its defaults are for a router that is not trained by itself."""

from typing import Literal, Self

from rayhier.spec.base import Section

Reads = Literal["vectors", "tokens"]
"""Part of an encoded text that routing needs: `vectors`, the text's vector; `tokens`, also its tokens' vectors."""


class Routing(Section):
    """Settings of a router: number of leaves, and how texts are routed to them."""

    @property
    def spills(self) -> bool:
        """Return True if only documents near a border between leaves get a second leaf; by default False."""
        return False

    @property
    def splits_leaves(self) -> bool:
        """Return True if maintenance may split leaves and give them up; by default False."""
        return False

    @property
    def reads(self) -> Reads:
        """Part of an encoded text that routing needs: `vectors` by default."""
        return "vectors"

    @property
    def sidecar_bytes(self) -> int:
        """Bytes that sidecars of the leaf map take for a document: 0 by default."""
        return 0

    def phases(self, *, supervised: bool) -> dict[str, int]:  # noqa: ARG002  some routers are taught by judged pairs
        """Return the phases of training in which only the router trains, name -> epochs; none by default.

        `supervised` says that there are judged train pairs.
        """
        return {}

    def targets(self, queries: int, documents: int) -> int:  # noqa: ARG002  some routers are taught by both
        """Return the number of texts (judged queries, and documents) that teach the router by itself; 0 by default."""
        return 0

    def over(self, documents: int) -> Self:  # noqa: ARG002  some routers count them
        """Return a copy in which a branching that fits `documents` documents replaces `auto`; by default unchanged."""
        return self
