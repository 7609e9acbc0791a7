"""Show the shape of a document tree: statistics of each level, and the tree as indented text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.clusters import mean_cosine
from rayhier.cluster.document_tree import DocumentTree
from rayhier.cluster.kmeans import members
from rayhier.dataset.balance import balance

NAME_WIDTH = 60
"""Most characters of a document's name in the text of a tree."""


@dataclass(frozen=True)
class Level:
    """Statistics of the nodes of one level; a node's size is the number of documents below it."""

    level: int
    """Number of edges from the root to the level."""
    nodes: int
    empty: int
    smallest: int
    median: float
    largest: int
    imbalance: float
    """k·Σs²/(Σs)² over the sizes s of the level's k nodes; 1 where all sizes are equal."""
    cosine: float | None
    """Mean cosine between a node's children (documents, or centroids of nodes) and its centroid; None where unknown."""

    @classmethod
    def of(cls, level: int, size_K: Ints, cosine: float | None) -> "Level":
        """Compute the statistics of a level from the sizes [nodes] of its nodes."""
        even = balance(size_K)
        smallest, median, largest = int(size_K.min()), float(np.median(size_K)), int(size_K.max())
        return cls(level, len(size_K), int(even["empty"]), smallest, median, largest, even["imbalance"], cosine)


def statistics(tree: DocumentTree, vectors_NM: Floats | None = None) -> list[Level]:
    """Compute the statistics of a tree's levels of nodes, from the one below the root to the one above the documents.

    The mean cosine of the last level needs the documents' vectors [n, m]; without them it is None.
    """
    below = [*tree.centroids[1:], vectors_NM]
    owns = [*tree.parents[1:], tree.leaf_N]
    return [
        Level.of(number, size_K, None if below_NM is None else mean_cosine(below_NM, centroid_KM, own_N))
        for number, (size_K, centroid_KM, below_NM, own_N) in enumerate(
            zip(tree.sizes(), tree.centroids, below, owns, strict=False), start=1
        )
    ]


def table(levels: Sequence[Level]) -> list[str]:
    """Format levels as lines of a table with a header, numbers aligned to the right."""
    head = ("level", "nodes", "empty", "smallest", "median", "largest", "imbalance", "cosine")
    rows = [
        (
            *(f"{count:,}" for count in (level.level, level.nodes, level.empty, level.smallest)),
            *(f"{level.median:,g}", f"{level.largest:,}", f"{level.imbalance:.3f}"),
            "-" if level.cosine is None else f"{level.cosine:.3f}",
        )
        for level in levels
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]


def dump(
    tree: DocumentTree, names: Sequence[str], lines: int = 10_000, depth: int | None = None, each: int = 3
) -> Iterator[str]:
    """Yield the tree as lines: number and size of each node, indented by level, the largest of siblings first.

    Nodes of the lowest level, or of level `depth`, name `each` of their documents; `names` are the documents' ids or
    titles [n]. Empty nodes are left out. After `lines` lines, a last line tells the number of nodes left out.
    """
    yield _counted(len(names))
    shown = tree.height - 1 if depth is None else min(depth, tree.height - 1)
    if not shown:
        yield f"  {_named(names, np.arange(len(names)), each)}"
        return
    outline = _Outline(tree, names, shown, each)
    left = sum(int((size_K > 0).sum()) for size_K in outline.sizes)
    for line in outline.below(0, 0):
        if not lines:
            yield f"… and {left:,} more nodes"
            return
        yield line
        lines, left = lines - 1, left - 1


class _Outline:
    """Levels 1 to `shown` of a tree, as text."""

    def __init__(self, tree: DocumentTree, names: Sequence[str], shown: int, each: int) -> None:
        self.names, self.shown, self.each = names, shown, each
        self.sizes = tree.sizes()[:shown]
        counts = [1, *map(len, self.sizes)]
        self.children = [members(own_K, k) for own_K, k in zip(tree.parents[:shown], counts, strict=False)]
        self.documents = members(tree.paths()[:, shown - 1], counts[shown])

    def below(self, level: int, node: int) -> Iterator[str]:
        """Lines of all that is below a node of a level."""
        child_K = self.children[level][node]
        size_K = self.sizes[level][child_K]
        for child, size in sorted(zip(child_K.tolist(), size_K.tolist(), strict=True), key=lambda pair: -pair[1]):
            line = f"{'  ' * (level + 1)}{child}: {_counted(size)}"
            if not size:
                return
            if level + 1 == self.shown:
                yield f"{line}: {_named(self.names, self.documents[child], self.each)}"
            else:
                yield line
                yield from self.below(level + 1, child)


def _counted(documents: int) -> str:
    return "1 document" if documents == 1 else f"{documents:,} documents"


def _named(names: Sequence[str], row_R: Ints, each: int) -> str:
    """Names of the first rows on one line, each cut where it is long."""
    shown = [" ".join(names[row].split()) for row in row_R[:each].tolist()]
    cut = [name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…" for name in shown]
    return "; ".join([*cut, *(["…"] if len(row_R) > each else [])])
