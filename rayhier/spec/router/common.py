"""Base class of the settings of all routers. Its defaults fit a router that training does not change."""

from typing import Literal, Self

from rayhier.spec.base import Section

Reads = Literal["vectors", "tokens"]
"""Part of an encoded text that routing needs. `vectors`: the text's vector. `tokens`: also vectors of its tokens."""


class Routing(Section):
    """Settings of a router: number of leaves, and how texts are routed to them."""

    @property
    def spills(self) -> bool:
        """Return True if only documents near a border between leaves get a second leaf. By default False."""
        return False

    @property
    def splits_leaves(self) -> bool:
        """Return True if maintenance may split and remove leaves. By default False."""
        return False

    @property
    def reads(self) -> Reads:
        return "vectors"

    @property
    def sidecar_bytes(self) -> int:
        """Bytes that the leaf map's additional files take for a document. By default 0."""
        return 0

    def phases(self, *, supervised: bool) -> dict[str, int]:  # noqa: ARG002  some routers are taught by judged pairs
        """Return phases in which only the router trains, name -> epochs. `supervised`: there are judged pairs."""
        return {}

    def targets(self, queries: int, documents: int) -> int:  # noqa: ARG002  some routers are taught by both
        """Return the number of texts that teach the router after the encoder's training. By default 0."""
        return 0

    def over(self, documents: int) -> Self:  # noqa: ARG002  some routers count them
        """Return a copy whose branching fits `documents` documents in place of `auto`. By default unchanged."""
        return self
