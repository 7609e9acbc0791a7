"""Keep a document tree on storage: `documents/*.parquet` (doc_id, node), and `nodes.parquet`, which is written last."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.cluster.document_tree import DocumentTree
from rayhier.spec import InputError
from rayhier.storage import columns, files
from rayhier.storage.paths import Location

NODES = "nodes.parquet"
DOCUMENTS = "documents/"
DOC_ID = pa.field("doc_id", pa.string())


def node_schema(dimension: int) -> pa.Schema:
    """Make the schema of nodes.parquet, for centroids [dimension]; `size` counts the documents below a node.

    It holds the nodes of all levels between root and documents; level 1 is below the root.
    """
    numbers = [("level", pa.int8()), ("node", pa.int32()), ("parent", pa.int32()), ("size", pa.int64())]
    return pa.schema([*numbers, ("centroid", pa.list_(pa.float32(), dimension))])


def own_schema(key: pa.Field) -> pa.Schema:
    """Make the schema of files with the node above each document, or each node of the level below, named by `key`."""
    return pa.schema([key, ("node", pa.int32())])


def node_table(level: int, first: int, parent_K: Ints, size_K: Ints, centroid_KM: Floats) -> pa.Table:
    """Make the rows of nodes.parquet for nodes of a level, numbered from `first`; centroids are [nodes, m]."""
    k, dimension = centroid_KM.shape
    numbers = [np.full(k, level), np.arange(first, first + k), parent_K, size_K]
    schema = node_schema(dimension)
    arrays = [pa.array(values, field.type) for values, field in zip(numbers, schema, strict=False)]
    return pa.table([*arrays, columns.vector_column(centroid_KM, pa.float32())], schema=schema)


def check_free(folder: Location) -> None:
    """Raise InputError where the folder holds a tree, or a part of a tree, already."""
    if any(name == NODES or name.startswith(DOCUMENTS) for name in files.below(folder)):
        raise InputError(f"{folder}: holds a tree already; allowed: a folder without {NODES} and {DOCUMENTS}")


def write(folder: Location, tree: DocumentTree, ids: Sequence[str], dimension: int) -> None:
    """Write a tree to a folder; `ids` are those of its documents [n].

    InputError where the folder holds a tree already.
    """
    check_free(folder)
    assigned = pa.table([pa.array(ids, pa.string()), pa.array(tree.leaf_N, pa.int32())], schema=own_schema(DOC_ID))
    files.write_parquet(folder, f"{DOCUMENTS}part-00000.parquet", [assigned], assigned.schema)
    levels = enumerate(zip(tree.parents, tree.sizes(), tree.centroids, strict=True), start=1)
    write_nodes(folder, (node_table(level, 0, *arrays) for level, arrays in levels), dimension)


def write_nodes(folder: Location, tables: Iterable[pa.Table], dimension: int) -> None:
    """Write nodes.parquet from tables of nodes, top down; `dimension` is the size of a centroid."""
    files.write_parquet(folder, NODES, tables, node_schema(dimension))


def read(folder: Location) -> tuple[DocumentTree, list[str]]:
    """Read a tree, and the ids [n] of its documents in the order of `leaf_N`; InputError where there is no tree."""
    if not (folder / NODES).is_file():
        raise InputError(f"{folder / NODES}: no such file; allowed: a folder that holds a whole tree")
    nodes = files.read_table(folder / NODES)
    level_K = nodes["level"].to_numpy()
    levels = [nodes.filter(pa.array(level_K == level)) for level in range(1, level_K.max(initial=0) + 1)]
    names = [name for name in files.below(folder) if name.startswith(DOCUMENTS)]
    assigned = columns.read([folder / name for name in names], ["doc_id", "node"])
    tree = DocumentTree(
        [columns.matrix(level["centroid"]) for level in levels],
        [level["parent"].to_numpy().astype(np.int64) for level in levels],
        assigned["node"].to_numpy().astype(np.int64),
    )
    return tree, assigned["doc_id"].to_pylist()
