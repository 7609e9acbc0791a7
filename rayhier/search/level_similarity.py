"""Similarity of queries and documents by their numbers at a level of ReTreever's tree."""

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
    """A rule for comparing documents at a level of ReTreever's tree, and for scoring the best of them again."""

    level: int
    comparison: Comparison
    again: str
    """Source of the second scores of the best documents: `none`, `level` (the deepest level) or `vectors`."""
    offset_L: Floats | None = field(default=None, compare=False, repr=False)
    """Learned numbers [l], one for each leaf, that are added to a text's numbers before the cosine (`represent`); None
    for total variation."""

    @classmethod
    def of(cls, search: SearchSpec, router: RetreeverRouter) -> Self:
        """Make the similarity from a spec, which names the level and the second scores, and from a trained router."""
        trained = router.representations
        offset_L = None if trained.offset_L is None else trained.offset_L.detach().cpu().numpy()
        return cls(search.at_level(router.levels), trained.similarity, search.finish, offset_L)

    @property
    def numbers(self) -> str:
        """Say in words by what documents are compared."""
        return f"{2**self.level} numbers, level {self.level} of the tree"

    def level_of(self, stored_NL: npt.NDArray[Any], level: int) -> Floats:
        """Compute texts' numbers at a level h, [n, 2^h], from their leaf probabilities as stored [n, l]."""
        offset_K = None if self.offset_L is None else torch.from_numpy(self.offset_L).reshape(2**level, -1).mean(dim=1)
        return np.asarray(represent(torch.from_numpy(at_level(stored_NL, level)), self.comparison, offset_K).numpy())

    def query(self, router: RetreeverRouter, encoded: Encoded) -> "FlatQuery":
        """Compute queries' numbers as documents' are computed, from leaf probabilities in the stored precision.

        InputError where the router reads tokens and only vectors are known.
        """
        if router.reader is not None and encoded.token_scores is None:
            raise InputError(f"vector: {UNREAD}")
        stored_QL = router.leaves(encoded)
        again_QX = encoded.numpy if self.again == "vectors" else None
        if self.again == "level":
            again_QX = self.level_of(stored_QL, router.levels)
        return FlatQuery(self.level_of(stored_QL, self.level), again_QX)


@dataclass(frozen=True)
class FlatQuery:
    """Queries as numbers, for a search by a level of ReTreever's tree."""

    query_QK: Floats
    """The queries' numbers [q, k] at the level."""
    again_QX: Floats | None
    """The queries' numbers [q, x] by which the best documents are scored again; None where they are not."""

    def part(self, rows: slice) -> "FlatQuery":
        """Return the queries at `rows`."""
        return FlatQuery(self.query_QK[rows], None if self.again_QX is None else self.again_QX[rows])
