"""Nodes of an index's tree, their documents and queries, and the paths of documents and queries through the tree."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints
from rayhier.index.describe import describe
from rayhier.index.display import DisplayTree
from rayhier.index.nodes import Node, NodeTable
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import Tree
from rayhier.search.index import reading_leaf_map
from rayhier.search.routing.routes import Model
from rayhier.search.segment.flat_scan import nodes_of
from rayhier.spec import InputError
from rayhier.storage import columns, current, parquet, schemas
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import BUILT, LEAVES, LeafMap
from rayhier.storage.paths import Location
from rayhier.storage.schemas import NODES

MOST_QUERIES = 1_000
"""Largest number of queries of the corpus that are routed to find typical queries of the nodes."""
QUERIES = 3
"""Largest number of typical queries that are shown for a node."""
PLACED = 256
TITLE = 200
"""Largest number of characters of a text that replaces a missing title."""


@dataclass(frozen=True)
class PathStep:
    """A node on the path of a text, and the probability that the text lies below the node."""

    node: Node
    probability: float


class Inspection:
    """One version of an index and its model, with the nodes of its tree in `levels`, top down."""

    def __init__(self, workdir: Location, now: Current, leaf_map: LeafMap, model: Model) -> None:
        self.workdir, self.now, self.there, self.model = workdir, now, leaf_map, model
        self.tree = DisplayTree.of(model.router)
        table = self._table()
        self.levels, self._nodes = _nodes(table), NodeTable(table, np.array(leaf_map.manifest.counts))

    @classmethod
    @contextlib.contextmanager
    def open(cls, workdir: Location) -> Iterator[Self]:
        """Open the index of a workdir. In the `with` block, vacuum keeps its version. InputError without an index."""
        now = current.read(workdir)
        with reading_leaf_map(workdir, now) as leaf_map:
            yield cls(workdir, now, leaf_map, Model.of_workdir(workdir, now, leaf_map))

    def _table(self) -> pa.Table:
        """Descriptions of the nodes: stored for the built version, and computed for later versions."""
        if self.there.manifest.version == BUILT:
            table = parquet.read(self.there.root / LEAVES)
            if table.schema.equals(schemas.LEAVES):
                return table
        return describe(self.there, self.tree)

    @property
    def root(self) -> Node:
        manifest = self.there.manifest
        return Node(0, 0, 0, sum(manifest.counts), [], [])

    def node(self, name: str) -> Node:
        """Find the node named LEVEL:NUMBER. InputError if the tree has no such node."""
        level, _, number = name.partition(":")
        if level.isdecimal() and number.isdecimal() and 1 <= int(level) <= len(self.levels):
            nodes = self.levels[int(level) - 1]
            if int(number) < len(nodes):
                return nodes[int(number)]
            allowed = f"{level}:0 to {level}:{len(nodes) - 1}"
        else:
            allowed = f"LEVEL:NUMBER, levels 1 to {len(self.levels)}"
        raise InputError(f"--node: got {name!r}, which is not in this tree; allowed: {allowed}")

    def children(self, node: Node) -> list[Node]:
        return self._nodes.below(node.name, limit=self.model.router.n_leaves)[0]

    def above(self, node: Node) -> list[Node]:
        """List the nodes from a child of the root down to `node`, both included."""
        path = [node]
        while path[0].level > 1:
            path.insert(0, self.levels[path[0].level - 2][path[0].parent])
        return path

    def titles(self, ids: Sequence[str]) -> dict[str, str]:
        """Read the titles of documents, or the beginnings of texts if titles are missing: id -> title."""
        wanted, titles = pa.array(sorted(set(ids)), pa.string()), {}
        for shard in self.there.manifest.shards:
            table = self.there.read(shard, ["doc_id", "rank", "title", "text"], verify=False)
            table = table.filter(pc.and_(pc.equal(table["rank"], 0), pc.is_in(table["doc_id"], wanted)))
            for name, title, text in zip(*(table[key].to_pylist() for key in ("doc_id", "title", "text")), strict=True):
                titles[name] = " ".join((title or text)[:TITLE].split())
        return titles

    def document(self, name: str) -> list[PathStep]:
        """Return the path of a document to its leaf, with probabilities. InputError for an id not in the index."""
        paths = self.documents([name])
        if name not in paths:
            raise InputError(f"--document: got {name!r}, which is not in the index; allowed: an id of a document")
        return paths[name]

    def documents(self, names: Sequence[str]) -> dict[str, list[PathStep]]:
        """Return the paths of documents to their leaves, id -> path. Ids that are not in the index are left out."""
        wanted, paths = pa.array(sorted(set(names)), pa.string()), {}
        levels = isinstance(self.model.router, Tree)
        for shard in self.there.manifest.shards:
            if levels:
                nodes_of(self.there, shard)
            read = ["doc_id", "rank", "leaf", NODES if levels else "vector"]
            rows = self.there.read(shard, read, verify=False)
            rows = rows.filter(pc.and_(pc.is_in(rows["doc_id"], wanted), pc.equal(rows["rank"], 0)))
            for begin in range(0, rows.num_rows, PLACED):
                part = rows.slice(begin, PLACED)
                placed = zip(part["doc_id"].to_pylist(), part["leaf"].to_pylist(), self._placed(part), strict=True)
                paths.update({name: self._path(leaf, probability_L) for name, leaf, probability_L in placed})
        return paths

    def _placed(self, rows: pa.Table) -> Floats:
        """Compute the probability [n, leaves] of each leaf for the documents of a table."""
        router = self.model.router
        if isinstance(router, Tree):
            return np.asarray(2 * columns.matrix(rows[NODES]) / router.n_leaves)
        encoded = Encoded(columns.matrix(rows["vector"]))
        return _spread(*router.place(encoded, router.n_leaves), router.n_leaves)

    def query(self, text: str) -> list[PathStep]:
        probability_L = self.routed(self.model.encode_queries([text]))[0]
        return self._path(int(probability_L.argmax()), probability_L)

    def routed(self, encoded: Encoded) -> Floats:
        router, begins = self.model.router, range(0, len(encoded), PLACED)
        parts = (router.route(encoded[begin : begin + PLACED], router.n_leaves) for begin in begins)
        return np.concatenate([_spread(*part, router.n_leaves) for part in parts])

    def _path(self, leaf: int, probability_L: Floats) -> list[PathStep]:
        path_T = self.tree.paths()[leaf]
        sums = self.tree.summed(probability_L)
        return [
            PathStep(nodes[number], float(sum_K[number]))
            for nodes, sum_K, number in zip(self.levels, sums, path_T.tolist(), strict=True)
        ]

    @cached_property
    def _asked(self) -> tuple[list[str], Floats]:
        """Read the distinct texts of the corpus's queries, and compute the probability [q, leaves] of each leaf."""
        corpus, vectors, *test = (
            current.artifact(self.workdir, self.now, kind)
            for kind in ("corpus", "vectors", *(["test"] if "test" in self.now.artifacts else []))
        )
        texts, stored = (
            columns.read([artifact.verified("queries.parquet") for artifact in (first, *test)], ["query_id", column])
            for first, column in ((corpus, "text"), (vectors, "vector"))
        )
        first = {text: row for row, text in reversed([*enumerate(texts["text"].to_pylist())])}
        rows = sorted(first.values())[:MOST_QUERIES]
        if not rows:
            return [], np.zeros((0, self.model.router.n_leaves), np.float32)
        chosen = texts.take(pa.array(rows))
        matched = stored.take(pc.index_in(chosen["query_id"], stored["query_id"].combine_chunks()))
        names: list[str] = chosen["text"].to_pylist()
        return names, self.routed(self.model.encode_stored(columns.matrix(matched["vector"]), lambda: names, "query"))

    @cached_property
    def queries(self) -> list[list[list[str]]]:
        return by_node(*self._asked, self.tree.paths(), self.tree.counts)

    def asked(self, texts: Sequence[str]) -> dict[str, list[PathStep]]:
        """Return the paths of the corpus's queries with these texts to their most probable leaves, text -> path."""
        names, probability_QL = self._asked
        row = {name: number for number, name in enumerate(names)}
        return {text: self._path(int(probability_QL[row[text]].argmax()), probability_QL[row[text]]) for text in texts}


def by_node(
    names: Sequence[str], probability_QL: Floats, path_LT: Ints, counts: Sequence[int]
) -> list[list[list[str]]]:
    """Return the most probable queries of each node, at most QUERIES, among queries whose best path has the node.

    `path_LT` are the nodes above each leaf, `counts` the numbers of nodes of each level.
    """
    names_at: list[list[list[str]]] = [[[] for _ in range(count)] for count in counts]
    if not names:
        return names_at
    leaf_Q = probability_QL.argmax(axis=1)
    for level, node_L in zip(names_at, path_LT.T, strict=True):
        node_Q = node_L[leaf_Q]
        there_Q = np.where(node_L == node_Q[:, None], probability_QL, 0).sum(axis=1)
        for row in np.argsort(-there_Q, kind="stable").tolist():
            if len(level[node_Q[row]]) < QUERIES:
                level[node_Q[row]].append(names[row])
    return names_at


def _nodes(table: pa.Table) -> list[list[Node]]:
    levels: list[list[Node]] = []
    for row in table.to_pylist():
        if row["level"] > len(levels):
            levels.append([])
        node = Node(row["level"], row["node"], row["parent"], row["size"], row["keywords"], row["documents"])
        levels[-1].append(node)
    return levels


def _spread(leaf_NK: Ints, log_prob_NK: Floats, leaves: int) -> Floats:
    """Compute probabilities [n, leaves] from leaves [n, k], in any order, and their log-probabilities."""
    probability_NL = np.zeros((len(leaf_NK), leaves), np.float32)
    np.put_along_axis(probability_NL, leaf_NK, np.exp(log_prob_NK), axis=1)
    return probability_NL
