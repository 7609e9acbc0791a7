"""Settings of routers with a tree: children of a node, and levels, which together give the number of leaves."""

from abc import abstractmethod
from typing import Annotated, Literal, Self

from pydantic import Field

from rayhier.spec.router.common import Routing


class TreeSpec(Routing):
    """A router's tree in which each node has B children, so that H levels have B^H leaves."""

    branching: Annotated[int, Field(ge=2, le=1_000_000)] | Literal["auto"] = "auto"
    """Number of children of each node, B. `auto`: chosen by the number of documents."""

    @property
    def levels(self) -> int:
        return 1

    @abstractmethod
    def auto_leaves(self, documents: int) -> float:
        """Return the desired number of leaves for `documents` documents if `branching` is auto."""

    def leaves(self, documents: int) -> int:
        return int(self.children(documents) ** self.levels)

    def children(self, documents: int) -> int:
        """Return the number of children of a node, B, for a tree over `documents` documents."""
        if self.branching != "auto":
            return self.branching
        return int(max(2, round(self.auto_leaves(documents) ** (1 / self.levels))))

    def over(self, documents: int) -> Self:
        return self.model_copy(update={"branching": self.children(documents)})
