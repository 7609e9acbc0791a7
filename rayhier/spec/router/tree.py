"""What every router's tree has: children of a node, levels, and how many leaves that makes."""

from abc import abstractmethod
from typing import Annotated, Literal, Self

from pydantic import Field

from rayhier.spec.section import Section


class Tree(Section):
    """A tree of equal branching, B^H leaves."""

    branching: Annotated[int, Field(ge=2, le=1_000_000)] | Literal["auto"] = "auto"
    """Children of every node, B. `auto` follows from the number of documents."""
    height: Annotated[int, Field(ge=1, le=8)] = 1
    """Levels below the root, H. Leaves are B^H."""

    @abstractmethod
    def auto_leaves(self, documents: int) -> float:
        """Leaves wanted over so many documents where `branching` is auto."""

    def leaves(self, documents: int) -> int:
        """Leaves of the tree over so many documents: B^H."""
        return int(self.children(documents) ** self.height)

    def children(self, documents: int) -> int:
        """Children of a node over so many documents: B."""
        if self.branching != "auto":
            return self.branching
        return int(max(2, round(self.auto_leaves(documents) ** (1 / self.height))))

    def over(self, documents: int) -> Self:
        """A copy with the branching that `auto` stands for over so many documents."""
        return self.model_copy(update={"branching": self.children(documents)})
