"""`rayhier cluster WORKDIR --branching 8 --dump tree.txt`: grow a document tree, and show its shape."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rayhier.command import run_command
from rayhier.spec import InputError, JobSpec
from rayhier.spec.cluster import ClusterSpec
from rayhier.storage import columns, current, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import Location, locate

if TYPE_CHECKING:
    from rayhier.cluster.document_tree import DocumentTree
    from rayhier.cluster.shape import Level

SEEDS = 2**31
IN_MEMORY = 4_000_000_000
"""Most bytes of vectors in float32 for which the tree is grown in memory; for more, it is grown on Ray, from
storage."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns exit code 2 after a user's mistake or a file that cannot be read or written, else 0."""
    options = _parser().parse_args(arguments)
    return run_command(lambda: print("\n".join(_run(options))), failures=(pa.ArrowException,))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rayhier cluster", description="Grow a document tree, and show its shape.", allow_abbrev=False
    )
    parser.add_argument("place", help="workdir with an index, or folder of parquet files (doc_id, vector: unit length)")
    parser.add_argument("--branching", type=_branching, default=8, help="documents or nodes of a node (default 8)")
    parser.add_argument("--seed", type=_seed, default=0, help="seed of the k-means (default 0)")
    parser.add_argument("--output", help="folder, or s3:// or gs:// prefix, to write the tree to, as parquet files")
    parser.add_argument("--dump", type=Path, help="file to write the tree to, as indented text")
    parser.add_argument("--titles", help="folder of parquet files (doc_id, title) that name documents in the text")
    parser.add_argument("--lines", type=_count, default=10_000, help="most lines of the text (default 10000)")
    parser.add_argument("--depth", type=_count, help="most levels of the text (default: all)")
    return parser


def _branching(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: 2 or more")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= SEEDS:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: 0 to {SEEDS - 1}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: 1 or more")
    return int(text)


@dataclass(frozen=True)
class Collection:
    """Files of vectors (doc_id, vector) and of titles (doc_id, title), and the Ray cluster to work on."""

    vectors: list[Location]
    titles: list[Location]
    cluster: ClusterSpec

    @classmethod
    def open(cls, place: Location, titles: str | None) -> "Collection":
        """Open a workdir with its corpus's titles, or a folder of vectors; `titles` is a folder of other titles.

        InputError where there are no vectors, or a file lacks a column.
        """
        named = [] if titles is None else parts(locate(titles), "title")
        if not (place / current.NAME).is_file():
            return cls(parts(place, "vector"), named, ClusterSpec())
        now = current.read(place)
        vectors, corpus = (documents(current.artifact(place, now, kind)) for kind in ("vectors", "corpus"))
        return cls(vectors, named or corpus, now.spec.cluster)


def documents(artifact: Artifact) -> list[Location]:
    """List the files of documents of an artifact."""
    return [artifact.path(name) for name in artifact.names("documents/")]


def parts(folder: Location, column: str) -> list[Location]:
    """List the parquet files of a folder, or of its subfolder `documents`; InputError where a column is missing."""
    names = [name for name in files.below(folder) if name.endswith(".parquet")]
    chosen = [name for name in names if name.startswith("documents/")] or [name for name in names if "/" not in name]
    if not chosen:
        raise InputError(f"{folder}: no {current.NAME} and no parquet files; allowed: a workdir, or a folder of those")
    for name in chosen:
        schema = files.read_metadata(folder / name).schema.to_arrow_schema()
        if missing := {"doc_id", column} - set(schema.names):
            raise InputError(
                f"{folder / name}: no column {', '.join(sorted(missing))}; it has {', '.join(schema.names)}"
            )
        if column == "vector" and not pa.types.is_fixed_size_list(schema.field(column).type):
            raise InputError(f"{folder / name}: vector is {schema.field(column).type}; allowed: a fixed_size_list")
    return [folder / name for name in chosen]


def _run(options: argparse.Namespace) -> list[str]:
    """Grow the tree and write it where the options name places; returns the lines to print."""
    from rayhier.cluster import stored
    from rayhier.cluster.shape import dump, table

    began = time.monotonic()
    place, output = locate(options.place), options.output and locate(options.output)
    collection = Collection.open(place, options.titles)
    metadata = [files.read_metadata(path) for path in collection.vectors]
    rows = sum(file.num_rows for file in metadata)
    if not rows:
        raise InputError(f"{place}: its files hold no vectors; allowed: one or more")
    size = 4 * rows * metadata[0].schema.to_arrow_schema().field("vector").type.list_size
    grown = None
    if size <= IN_MEMORY:
        grown, levels = _grow(collection, options.branching, options.seed, output)
    elif output:
        levels = _grow_streamed(collection, options.branching, options.seed, output)
    else:
        raise InputError(f"--output: needed for {size / 1e9:.1f} GB of vectors; allowed: a folder every node can write")
    if options.dump is not None:
        tree, ids = grown or stored.read(output)
        lines = dump(tree, _names(ids, collection.titles), options.lines, options.depth)
        options.dump.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return [f"{rows:,} documents, height {len(levels) + 1} ({time.monotonic() - began:.1f} s)", *table(levels)]


def _grow(
    collection: Collection, branching: int, seed: int, output: Location | None
) -> tuple[tuple["DocumentTree", list[str]], list["Level"]]:
    """Grow the tree in memory, and write it where there is an output; returns it with the documents' ids."""
    from rayhier.cluster import stored
    from rayhier.cluster.document_tree import grow
    from rayhier.cluster.shape import statistics
    from rayhier.dataset.documents import together

    if output:
        stored.check_free(output)
    ids: list[str] = []
    read = []
    for path in collection.vectors:
        table = files.read_table(path, ["doc_id", "vector"])
        ids += table["doc_id"].to_pylist()
        read.append(columns.matrix(table["vector"]))
    vector_NM = together(read)
    tree = grow(vector_NM, branching, seed)
    if output:
        stored.write(output, tree, ids, vector_NM.shape[1])
    return (tree, ids), statistics(tree, vector_NM)


def _grow_streamed(collection: Collection, branching: int, seed: int, output: Location) -> list["Level"]:
    """Grow the tree into `output` through Ray, by one process for each CPU."""
    from rayhier.cluster.ray import every_cpu, grow_streamed
    from rayhier.ray import join

    sections: dict[str, Any] = {"cluster": collection.cluster}
    join(JobSpec.model_construct(**sections))  # join reads only this section
    return grow_streamed(collection.vectors, branching, seed, output, output / "scratch", every_cpu())


def _names(ids: Sequence[str], titles: Sequence[Location]) -> list[str]:
    """Title of each document; its id where it has none."""
    table = columns.read(titles, ["doc_id", "title"]) if titles else pa.table({"doc_id": [], "title": []})
    title_of = dict(zip(table["doc_id"].to_pylist(), table["title"].to_pylist(), strict=True))
    return [title_of.get(name) or name for name in ids]


if __name__ == "__main__":
    sys.exit(main())
