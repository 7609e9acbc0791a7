"""A linear adapter whose first numbers represent a text too; a tree's splits start at the adapter's directions.

Shapes: N texts, M embedding size.
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.model.retreever import Representations
from rayhier.spec.train.retreever import Comparison


class Adapter(Representations):
    """A linear map whose first numbers represent a text too, at several sizes: "Matryoshka Representation Learning"."""

    similarity: Comparison = "cosine"

    def __init__(self, matrix_MM: Tensor, sizes: Sequence[int]) -> None:
        """Start at a matrix; `sizes` are the numbers of a representation, small first."""
        super().__init__()
        self.weight = nn.Parameter(matrix_MM.clone())
        self._counts = tuple(sizes)

    @property
    def width(self) -> int:
        """Size of a mapped vector, M."""
        return len(self.weight)

    @property
    def counts(self) -> Sequence[int]:
        """Numbers of each representation."""
        return self._counts

    def scores(self, *read: Tensor) -> Tensor:
        """Mapped vectors [N, M] of vectors [N, M]."""
        return read[0] @ self.weight.T

    def sizes(self, score_NW: Tensor) -> list[Tensor]:
        """Unit vectors [N, size] of each size."""
        return [F.normalize(score_NW[:, :count], dim=1) for count in self.counts]
