"""Grow a document tree on Ray Data from more vectors than a machine's memory holds.

A level is clustered as in `rayhier.cluster.clusters`, but its coarse cells lie on storage: Ray actors sort the vectors
of each part by cell, then cut each cell into its share of the clusters. The levels above are clustered in the same way
until one fits into memory. Results depend on the seed and on the parts in their order, never on the number of workers.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from rayhier.arrays import Floats, Ints
from rayhier.cluster import stored
from rayhier.cluster.clusters import cluster, shares
from rayhier.cluster.document_tree import DocumentTree, grow
from rayhier.cluster.kmeans import SAMPLE_A_CLUSTER, divide, fit, members, nearest
from rayhier.cluster.library import faiss
from rayhier.cluster.shape import Level, statistics
from rayhier.dataset.documents import together
from rayhier.progress import Bar
from rayhier.ray import stream
from rayhier.spec.cluster import CpuWorkers
from rayhier.spec.train.hce import node_counts
from rayhier.storage import columns, files
from rayhier.storage.paths import Location, locate

CELL_ROWS = 100_000
"""Number of vectors in a coarse cell, about; a cell of more than twice as many is clustered in pieces."""
SAMPLED_PARTS = 256
"""Most files whose vectors are sampled to learn the centroids of coarse cells."""
CHILD = "child"
"""Name of the column with the number of a node, where the level above clusters the nodes."""


@dataclass(frozen=True)
class Source:
    """Parquet files with the vectors (column `vector`) that one level clusters, and their numbers of rows."""

    paths: list[Location]
    rows: list[int]
    key: str
    """Column that identifies a vector: `doc_id` for documents, `child` for nodes of the level below."""

    @property
    def total(self) -> int:
        """Number of vectors in all files."""
        return sum(self.rows)

    def vectors(self) -> Floats:
        """Read the vectors of all files into memory, float32 [n, m]."""
        return columns.matrix(columns.read(self.paths, ["vector"])["vector"])


@dataclass(frozen=True)
class Grown:
    """One clustered level of a tree: its nodes, their sizes, and the mean cosine of vectors to nodes' centroids."""

    centroids: Source
    """Files of the level's nodes and centroids, which the level above clusters."""
    own: Location
    """Folder of the files that name the node of each clustered vector."""
    size_K: Ints
    """Number [nodes] of clustered vectors in each node."""
    cosine: float


Piece = tuple[str, int, int]
"""Path of a file, and a range [first, last) of its rows."""


class SortPart:
    """A Ray actor that rewrites files of vectors with rows sorted by coarse cell, a row group for each cell."""

    def __init__(self, key: str, centroid_CM: Floats, folder: str, cpus: int) -> None:
        faiss.omp_set_num_threads(cpus)
        self.key, self.centroid_CM, self.folder = key, centroid_CM, locate(folder)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Rewrite the file `row["path"]`, sorted; returns its number of rows in each cell, `counts` [cells]."""
        table = files.read_table(locate(row["path"]), [self.key, "vector"])
        cell_N = nearest(columns.matrix(table["vector"]), self.centroid_CM, 1)[0][:, 0]
        groups = (table.take(pa.array(rows)) for rows in members(cell_N, len(self.centroid_CM)) if len(rows))
        files.write_parquet(self.folder, part_name(int(row["part"])), groups, table.schema)
        return {"part": row["part"], "counts": np.bincount(cell_N, minlength=len(self.centroid_CM))}


class ClusterCell:
    """A Ray actor that cuts coarse cells into clusters; writes the node of each vector, and the nodes' centroids."""

    def __init__(self, key: str, assigned: str, centroids: str, seed: int, cpus: int) -> None:
        faiss.omp_set_num_threads(cpus)
        self.key, self.assigned, self.centroids, self.seed = key, locate(assigned), locate(centroids), seed

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Cut the rows `row["pieces"]` into `row["count"]` nodes, numbered from `row["first"]`, and write them.

        Returns the number of rows, and their mean cosine to the centroids of their nodes.
        """
        pieces, first, count = json.loads(row["pieces"]), int(row["first"]), int(row["count"])
        table = pa.concat_tables(
            files.read_rows(locate(path), [self.key, "vector"], begin, end) for path, begin, end in pieces
        )
        keys, vector_NM = table[self.key], columns.as_stored(table["vector"])
        del table
        clusters, name = cluster(vector_NM, count, self.seed), part_name(int(row["cell"]))
        assigned = pa.table({self.key: keys, "node": pa.array(first + clusters.own_N, pa.int32())})
        files.write_parquet(self.assigned, name, [assigned], assigned.schema)
        nodes = pa.table(
            {
                CHILD: pa.array(range(first, first + count), pa.int32()),
                "vector": columns.vector_column(clusters.centroid_KM, pa.float32()),
                "size": np.bincount(clusters.own_N, minlength=count),
            }
        )
        files.write_parquet(self.centroids, name, [nodes], nodes.schema)
        return {"cell": row["cell"], "rows": len(vector_NM), "cosine": clusters.cosine(vector_NM)}


def every_cpu() -> CpuWorkers:
    """Return settings for one process on each CPU of the Ray cluster."""
    return CpuWorkers(workers=max(1, int(ray.cluster_resources().get("CPU", 1))))


def grow_streamed(
    vectors: Sequence[Location],
    branching: int,
    seed: int,
    output: Location,
    scratch: Location,
    workers: CpuWorkers,
    cell_rows: int = CELL_ROWS,
) -> list[Level]:
    """Grow the tree of the documents in parquet files (doc_id, vector) into `output`; returns statistics of its levels.

    `output` then holds `documents/*.parquet` (doc_id, node) and `nodes.parquet` (`rayhier.cluster.stored`). Numbers of
    nodes are the same as by `grow`; which documents lie together differs. Empty clusters are repaired within a cell, so
    some stay empty where a cell has fewer distinct vectors than its share of clusters. In memory: a part, or a cell of
    at most a few times `cell_rows`, for each worker; in this process a sample of 256 vectors a cell, and the level
    where streaming ends, of at most `cell_rows` nodes. A new folder in `scratch` holds a copy of each vector until the
    end.

    ValueError for a branching below 2 or no vectors, InputError where `output` holds a tree already.
    """
    source = Source(list(vectors), [files.read_metadata(path).num_rows for path in vectors], "doc_id")
    counts = node_counts(source.total, branching)
    stored.check_free(output)
    folder = scratch / f"tree-{uuid.uuid4().hex[:8]}"
    grower = Grower(seed, workers, cell_rows)
    try:
        levels = [grower.level(source, [1, *counts][-1], output / "documents", folder / "1")]
        while (nodes := levels[-1].centroids).total > max(cell_rows, branching):
            place = folder / str(len(levels) + 1)
            levels.append(grower.level(nodes, counts[-1 - len(levels)], place / "own", place))
        return finish(levels, grow(nodes.vectors(), branching, seed), len(counts), output)
    finally:
        files.remove(folder)


@dataclass(frozen=True)
class Grower:
    """Clusters the levels of a tree, one after the other, with the same seed, workers and cell size."""

    seed: int
    workers: CpuWorkers
    cell_rows: int

    def level(self, source: Source, nodes: int, assigned: Location, scratch: Location) -> Grown:
        """Cluster the vectors of a source into `nodes` nodes; writes the node of each vector below `assigned`."""
        cells = list(self._cells(source, nodes, scratch / "sorted"))
        share_C = shares(np.array([sum(last - first for _, first, last in pieces) for pieces in cells]), nodes)
        first_C = np.cumsum(share_C) - share_C
        items = [
            {"cell": cell, "pieces": json.dumps(pieces), "first": int(first_C[cell]), "count": int(share_C[cell])}
            for cell, pieces in enumerate(cells)
        ]
        folder = scratch / "centroids"
        arguments = {
            "key": source.key,
            "assigned": str(assigned),
            "centroids": str(folder),
            "seed": self.seed,
            "cpus": self.workers.cpus,
        }
        sums = np.zeros(len(cells))
        with Bar("cluster", source.total, "vectors") as bar:
            for row in stream(items, ClusterCell, arguments, self.workers):
                sums[row["cell"]] = row["rows"] * row["cosine"]
                bar.advance(row["rows"])
        if bar.done != source.total:
            raise RuntimeError(f"{assigned}: got nodes for {bar.done} of {source.total} vectors")
        centroids = Source([folder / part_name(cell) for cell in range(len(cells))], share_C.tolist(), CHILD)
        size_K = columns.read(centroids.paths, ["size"])["size"].to_numpy()
        return Grown(centroids, assigned, size_K, float(sums.sum() / source.total))

    def _cells(self, source: Source, nodes: int, folder: Location) -> Iterator[list[Piece]]:
        """Pieces of files that hold the rows of each coarse cell; a large cell becomes several lists of pieces."""
        # Never more lists of pieces than nodes: cells are at most a quarter of the nodes, and cuts add at most half.
        count = min(-(-source.total // self.cell_rows), max(1, nodes // 4))
        most = max(2 * self.cell_rows, 4 * -(-source.total // nodes))
        if count == 1:
            yield from packed(
                [(str(path), 0, rows) for path, rows in zip(source.paths, source.rows, strict=True)], most
            )
            return
        count_PC = self._sort(source, self._coarse(source, count), folder)
        end_PC = np.cumsum(count_PC, axis=1)
        begin_PC = end_PC - count_PC
        paths = [str(folder / part_name(part)) for part in range(len(source.paths))]
        for begin_P, end_P in zip(begin_PC.T.tolist(), end_PC.T.tolist(), strict=True):
            yield from packed(list(zip(paths, begin_P, end_P, strict=True)), most)

    def _coarse(self, source: Source, count: int) -> Floats:
        """Centroids of coarse cells, from a sample of at most SAMPLED_PARTS parts."""
        rng = np.random.default_rng([self.seed, 5])
        parts = rng.permutation(len(source.paths))[:SAMPLED_PARTS]
        rows_P = np.array(source.rows)[parts]
        wanted_P = divide(rows_P, min(int(rows_P.sum()), SAMPLE_A_CLUSTER * count))
        drawn = []
        for part, rows, wanted in zip(parts.tolist(), rows_P.tolist(), wanted_P.tolist(), strict=True):
            if wanted:
                chosen = np.sort(rng.permutation(rows)[:wanted])
                table = files.read_table(source.paths[part], ["vector"])
                drawn.append(columns.matrix(table["vector"].take(pa.array(chosen))))
        return fit(together(drawn), np.arange(int(wanted_P.sum())), count, self.seed)[0]

    def _sort(self, source: Source, centroid_CM: Floats, folder: Location) -> Ints:
        """Write every part sorted by coarse cell; returns the numbers of rows [parts, cells]."""
        items = [{"part": part, "path": str(path)} for part, path in enumerate(source.paths)]
        arguments = {
            "key": source.key,
            "centroid_CM": centroid_CM,
            "folder": str(folder),
            "cpus": self.workers.cpus,
        }
        count_PC = np.zeros((len(items), len(centroid_CM)), dtype=np.int64)
        with Bar("coarse cells", source.total, "vectors") as bar:
            for row in stream(items, SortPart, arguments, self.workers):
                count_PC[row["part"]] = row["counts"]
                bar.advance(source.rows[row["part"]])
        return count_PC


def part_name(number: int) -> str:
    """Return the name of the file of a part or a cell, by its number."""
    return f"{number:06d}.parquet"


def packed(pieces: Sequence[Piece], most: int) -> Iterator[list[Piece]]:
    """Put consecutive pieces into lists of at most `most` rows, or of one larger piece; empty pieces are left out.

    >>> list(packed([("a", 0, 3), ("b", 2, 2), ("c", 0, 2), ("d", 1, 5)], 5))
    [[('a', 0, 3), ('c', 0, 2)], [('d', 1, 5)]]
    """
    group: list[Piece] = []
    for piece in pieces:
        _, first, last = piece
        if group and sum(end - begin for _, begin, end in group) + last - first > most:
            yield group
            group = []
        if last > first:
            group.append(piece)
    if group:
        yield group


def finish(levels: list[Grown], top: DocumentTree, height: int, output: Location) -> list[Level]:
    """Write the nodes of all `height` levels of a tree, and return their statistics.

    `levels` are the streamed levels, from the lowest up; `top` is the tree above them, grown in memory.
    """
    top_NM = levels[-1].centroids.vectors()
    cosines = [level.cosine for level in statistics(top, top_NM)] + [level.cosine for level in reversed(levels)]
    parents = [*top.parents, top.leaf_N, *(parents_of(level) for level in reversed(levels[1:]))][:height]
    sizes = [levels[0].size_K]
    for parent_K, above_K in zip(reversed(parents[1:]), reversed(parents[:-1]), strict=True):
        sizes.insert(0, np.bincount(parent_K, sizes[0], minlength=len(above_K)).astype(np.int64))

    def tables() -> Iterator[pa.Table]:
        streamed = [level.centroids for level in reversed(levels)]
        for number, (parent_K, size_K) in enumerate(zip(parents, sizes, strict=False)):
            parts = top.centroids[number : number + 1] or map(centroids_of, streamed[number - len(top.centroids)].paths)
            first = 0
            for part_KM in parts:
                last = first + len(part_KM)
                yield stored.node_table(number + 1, first, parent_K[first:last], size_K[first:last], part_KM)
                first = last

    stored.write_nodes(output, tables(), top_NM.shape[1])
    return [Level.of(*values) for values in zip(range(1, height + 1), sizes, cosines, strict=False)]


def centroids_of(path: Location) -> Floats:
    """Read the centroids [nodes, m] from a file of a level on storage."""
    return columns.matrix(files.read_table(path, ["vector"])["vector"])


def parents_of(level: Grown) -> Ints:
    """Read the parents [children]: the number of this level's node above each node of the level below."""
    table = columns.read([level.own / name for name in files.below(level.own)], [CHILD, "node"])
    parent_K = np.empty(len(table), dtype=np.int64)
    parent_K[table[CHILD].to_numpy()] = table["node"].to_numpy()
    return parent_K
