"""Nodes of an index's tree with their sizes in the opened version. Shapes: L leaves, K nodes of a level."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from rayhier.arrays import Ints
from rayhier.spec import InputError
from rayhier.storage import parquet, schemas
from rayhier.storage.leaf_map import LEAVES, LeafMap


@dataclass(frozen=True)
class Node:
    """A node of the tree that people see. Level 0 is the root."""

    level: int
    number: int
    parent: int
    size: int
    """Number of rows below the node. A document in two leaves has two rows."""
    keywords: list[str]
    documents: list[str]

    @property
    def name(self) -> str:
        """Name of the node on the command line: LEVEL:NUMBER."""
        return f"{self.level}:{self.number}"


class NodeTable:
    """The nodes of a built index, read by leaf or below a node. The nodes of the lowest level are the leaves."""

    def __init__(self, table: pa.Table, size_L: Ints) -> None:
        """Take a row for each node, in columns `schemas.LEAVES`, and the number of rows [leaves] in each leaf."""
        level_N, parent_N = table["level"].to_numpy(), table["parent"].to_numpy()
        self.levels = int(level_N[-1])
        self._table, self._begin = table, np.searchsorted(level_N, np.arange(1, self.levels + 2))
        self._parents = np.split(parent_N, self._begin[1:-1])
        if len(self._parents[-1]) != len(size_L):
            raise InputError(f"{LEAVES}: got {len(self._parents[-1])} leaves; allowed: {len(size_L)}, the index's")
        self._sizes: list[Ints] = [size_L]
        for above, parent_K in zip(reversed(self._parents[:-1]), reversed(self._parents[1:]), strict=True):
            summed_K = np.bincount(parent_K, weights=self._sizes[0], minlength=len(above))
            self._sizes.insert(0, summed_K.astype(np.int64))
        counts = [1, *map(len, self._parents)]
        self._children = [
            np.bincount(parent_K[size_K > 0], minlength=count)
            for parent_K, size_K, count in zip(self._parents, self._sizes, counts[:-1], strict=True)
        ]

    @classmethod
    def of(cls, leaf_map: LeafMap) -> Self:
        """Read the nodes of a leaf map, with the sizes of its version. InputError if another release wrote the file."""
        path = leaf_map.root / LEAVES
        table = parquet.read(path)
        if not table.schema.equals(schemas.LEAVES) or not table.num_rows:
            raise InputError(f"{path}: was written by another release of rayhier. Build the index with --fresh")
        revision = leaf_map.manifest.revision
        if revision is not None:
            table = _with_leaves(table, revision.origins)
        return cls(table, np.array(leaf_map.manifest.counts))

    def leaves(self, numbers: Sequence[int]) -> list[Node]:
        count = len(self._parents[-1])
        for number in numbers:
            if not 0 <= number < count:
                raise InputError(f"leaf: got {number}; allowed: 0 to {count - 1}")
        return self._nodes(self.levels, numbers)

    def below(self, name: str, limit: int) -> tuple[list[Node], int]:
        """Return the `limit` largest children of a node that have documents, and their total. The root is 0:0."""
        level, number = self._place(name)
        if level == self.levels:
            return [], 0
        size_K, parent_K = self._sizes[level], self._parents[level]
        children = np.flatnonzero((size_K > 0) & (parent_K == number))
        children = children[np.argsort(-size_K[children], kind="stable")]
        return self._nodes(level + 1, children[:limit].tolist()), len(children)

    def children(self, node: Node) -> int:
        return 0 if node.level == self.levels else int(self._children[node.level][node.number])

    def _place(self, name: str) -> tuple[int, int]:
        level, _, number = name.partition(":")
        counts = [1, *(len(parent_K) for parent_K in self._parents)]
        if level.isdecimal() and number.isdecimal() and int(level) < len(counts) and int(number) < counts[int(level)]:
            return int(level), int(number)
        raise InputError(f"below: got {name!r}; allowed: LEVEL:NUMBER of a node, levels 0 to {self.levels}")

    def _nodes(self, level: int, numbers: Sequence[int]) -> list[Node]:
        rows = self._table.take(pa.array([int(self._begin[level - 1]) + number for number in numbers], pa.int64()))
        size_K = self._sizes[level - 1]
        return [
            Node(level, row["node"], row["parent"], int(size_K[row["node"]]), row["keywords"], row["documents"])
            for row in rows.to_pylist()
        ]


def _with_leaves(table: pa.Table, origins: Sequence[int]) -> pa.Table:
    """Describe each leaf of a revised router like the leaf of the model that it was split from."""
    level_N = table["level"].to_numpy()
    first, place = int(np.searchsorted(level_N, level_N[-1])), table.schema.get_field_index("node")
    leaves = table.take(pa.array([first + origin for origin in origins], pa.int64()))
    numbered = leaves.set_column(place, table.schema.field(place), [pa.array(range(len(origins)), pa.int32())])
    return pa.concat_tables([table.slice(0, first), numbered])
