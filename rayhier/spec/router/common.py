"""The interface of every router's settings; the defaults are those of a router without training of its own."""

from abc import abstractmethod
from typing import Literal, Self

from rayhier.spec.base import Section

Reads = Literal["vectors", "tokens"]
"""Part of an encoded text that routing needs: its vector only, or its vector and its tokens' vectors."""


class Routing(Section):
    """Leaves, and how texts are routed to them."""

    @property
    def spills(self) -> bool:
        """Return True if only documents near a border get a second leaf; False by default: all documents do."""
        return False

    @property
    def calibrates(self) -> bool:
        """Return True if dev queries calibrate the router's probabilities, for a beam per query; False by default."""
        return False

    @property
    def reads(self) -> Reads:
        """Part of an encoded text that routing needs."""
        return "vectors"

    @property
    def sidecar_bytes(self) -> int:
        """Bytes of a document in sidecars of the leaf map: 0 by default."""
        return 0

    @property
    def dimensions(self) -> dict[str, int]:
        """Keys that count dimensions of the vectors, with their values; none may exceed the vectors' own."""
        return {}

    def phases(self, *, supervised: bool) -> dict[str, int]:  # noqa: ARG002  some routers are taught by judged pairs
        """Phases in which only the router trains, name -> epochs: none where it trains together with the encoder."""
        return {}

    def targets(self, queries: int, documents: int) -> int:  # noqa: ARG002  some routers are taught by both
        """Number of texts that teach the router after the encoder has trained: none."""
        return 0

    @abstractmethod
    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Multiply-adds of routing one vector in a router with `leaves` leaves."""

    def over(self, documents: int) -> Self:  # noqa: ARG002  some routers count them
        """Return a copy where `auto` is replaced by the branching for `documents` documents, if there is one."""
        return self
