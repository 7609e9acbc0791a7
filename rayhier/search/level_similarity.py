"""How a level of ReTreever's tree is searched: what queries and documents are compared by."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from rayhier.arrays import Floats
from rayhier.model.encoded import Encoded
from rayhier.model.retreever import RetreeverRouter, at_level, represent
from rayhier.model.router import UNREAD
from rayhier.spec import InputError
from rayhier.spec.search import SearchSpec
from rayhier.spec.train.retreever import Comparison


@dataclass(frozen=True)
class LevelSimilarity:
    """How a level is searched: what documents are compared by, and what scores the best of them again."""

    level: int
    comparison: Comparison
    again: str
    """`none`, `level` (the deepest) or `vectors`."""
    offset_L: Floats | None = field(default=None, compare=False, repr=False)
    """What the cosine adds to the leaves' numbers; the model that made the sidecars has it."""

    @classmethod
    def of(cls, search: SearchSpec, router: RetreeverRouter) -> Self:
        """Compare as a spec says, by a router's similarity."""
        own = router.representations
        offset_L = None if own.offset_L is None else own.offset_L.detach().cpu().numpy()
        return cls(search.at_level(router.levels), own.similarity, search.finish, offset_L)

    def level_of(self, stored_NL: npt.NDArray[Any], level: int) -> Floats:
        """What texts are compared by at a level [n, 2^h], from their leaves' stored probabilities [n, l]."""
        offset_K = None if self.offset_L is None else torch.from_numpy(self.offset_L).reshape(2**level, -1).mean(dim=1)
        return np.asarray(represent(torch.from_numpy(at_level(stored_NL, level)), self.comparison, offset_K).numpy())

    def query(self, router: RetreeverRouter, encoded: Encoded) -> "LevelQuery":
        """Represent queries as documents are, leaves' probabilities stored and all.

        InputError where the router reads tokens and only vectors are known.
        """
        if router.reader is not None and encoded.token_scores is None:
            raise InputError(f"vector: {UNREAD}")
        stored_QL = router.leaves(encoded)
        again_QX = encoded.numpy if self.again == "vectors" else None
        if self.again == "level":
            again_QX = self.level_of(stored_QL, router.levels)
        return LevelQuery(self.level_of(stored_QL, self.level), again_QX)


@dataclass(frozen=True)
class LevelQuery:
    """Queries as documents of a level are compared with them, and scored again."""

    level_QK: Floats
    again_QX: Floats | None

    def part(self, rows: slice) -> "LevelQuery":
        """Some of the queries."""
        return LevelQuery(self.level_QK[rows], None if self.again_QX is None else self.again_QX[rows])
