"""Settings of every router's tree: children of a node, and levels; together they give the number of leaves."""

from abc import abstractmethod
from typing import Annotated, Literal, Self

from pydantic import Field

from rayhier.spec.router.common import Routing


class TreeSpec(Routing):
    """A tree whose nodes all have B children: B^H leaves."""

    branching: Annotated[int, Field(ge=2, le=1_000_000)] | Literal["auto"] = "auto"
    """Children of every node, B. `auto`: chosen by the number of documents."""
    height: Annotated[int, Field(ge=1, le=8)] = 1
    """Levels below the root, H. The tree has B^H leaves."""

    @abstractmethod
    def auto_leaves(self, documents: int) -> float:
        """Number of leaves for `documents` documents where `branching` is auto."""

    def leaves(self, documents: int) -> int:
        """Number of leaves of the tree for `documents` documents: B^H."""
        return int(self.children(documents) ** self.height)

    def children(self, documents: int) -> int:
        """Number of a node's children for `documents` documents: B."""
        if self.branching != "auto":
            return self.branching
        return int(max(2, round(self.auto_leaves(documents) ** (1 / self.height))))

    def over(self, documents: int) -> Self:
        """Return a copy with `auto` replaced by the branching for `documents` documents."""
        return self.model_copy(update={"branching": self.children(documents)})
