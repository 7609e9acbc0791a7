"""A linear map of vectors whose first numbers alone represent a text; a tree's splits can start at its rows.

Shapes: N texts, M embedding size.
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.model.retreever import Representations
from rayhier.spec.train.retreever import Comparison


class Adapter(Representations):
    """A linear map of texts' vectors; the first numbers of a mapped vector are a smaller vector of the text.

    Kusupati et al., "Matryoshka Representation Learning", 2022.
    """

    similarity: Comparison = "cosine"

    def __init__(self, matrix_MM: Tensor, sizes: Sequence[int]) -> None:
        """Start at a matrix [m, m]; `sizes` are the sizes of the vectors to train, smallest first."""
        super().__init__()
        self.weight = nn.Parameter(matrix_MM.clone())
        self._counts = tuple(sizes)

    @property
    def width(self) -> int:
        """Size of a mapped vector, m."""
        return len(self.weight)

    @property
    def counts(self) -> Sequence[int]:
        """Sizes of the vectors, smallest first."""
        return self._counts

    def scores(self, *read: Tensor) -> Tensor:
        """Map vectors [n, m] to vectors [n, m]."""
        return read[0] @ self.weight.T

    def sizes(self, score_NW: Tensor) -> list[Tensor]:
        """Cut mapped vectors [n, m] to their first numbers: unit vectors [n, size] of each size, smallest first."""
        return [F.normalize(score_NW[:, :count], dim=1) for count in self.counts]
