"""`rayhier inspect WORKDIR`: show the tree of an index, and the path of a document or a query through it."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rayhier.command import run_command
from rayhier.spec import InputError
from rayhier.storage.paths import locate

if TYPE_CHECKING:
    from rayhier.index.nodes import Node
    from rayhier.inspect.nodes import Inspection, PathStep

DEPTH, MOST_DEPTH = 3, 16
"""DEPTH: number of levels shown where no depth is given. MOST_DEPTH: most levels that `--depth` allows."""
WORDS, WIDTH, SHORT = 8, 100, 40
"""WORDS: most keywords in a line. WIDTH: most characters of a text that fills a line. SHORT: of one that shares a
line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tree, a node or a path, or write an HTML page; returns exit code 2 after a user's mistake, else 0."""
    options = _parser().parse_args(arguments)
    return run_command(lambda: _show(options))


def _show(options: argparse.Namespace) -> None:
    from rayhier.corpus.check import encodes
    from rayhier.inspect.nodes import Inspection

    for name in ("query", "document"):
        if (text := getattr(options, name)) is not None and (not encodes(text) or not text.strip()):
            raise InputError(f"--{name}: got no words in UTF-8; allowed: a text")
    with Inspection.open(locate(options.workdir)) as tree:
        for line in _lines(options, tree):
            print(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rayhier inspect", description="Show the tree of an index.", allow_abbrev=False
    )
    parser.add_argument("workdir", help="folder, or s3:// or gs:// prefix, where a run built an index")
    parser.add_argument("--depth", type=_depth, default=DEPTH, help=f"levels shown (default {DEPTH})")
    parser.add_argument("--brief", action="store_true", help="show the tree without documents and queries")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--node", metavar="LEVEL:NUMBER", help="show one node, its place, and what it holds")
    only.add_argument("--document", metavar="ID", help="show the path of a document, with probabilities")
    only.add_argument("--query", metavar="TEXT", help="show the path of a query, with probabilities")
    only.add_argument("--html", type=Path, metavar="FILE", help="write one page, which needs nothing else")
    return parser


def _lines(options: argparse.Namespace, tree: "Inspection") -> Iterator[str]:
    if options.node is not None:
        yield from _one(tree, tree.node(options.node))
    elif options.document is not None:
        yield from _path(tree.document(options.document))
    elif options.query is not None:
        yield from _path(tree.query(options.query))
    elif options.html is not None:
        from rayhier.inspect.page import write_page

        size, nodes = write_page(tree, options.html, options.depth)
        yield f"{options.html}: {nodes:,} nodes, {size / 1e6:,.1f} MB"
    else:
        yield heading(tree)
        yield from _below(tree, tree.root, options.depth, {} if options.brief else _examples(tree, options.depth))


def heading(tree: "Inspection") -> str:
    """Describe the index in one line: numbers of documents, rows, leaves, and nodes of each level."""
    manifest, router = tree.there.manifest, tree.model.spec.router.type
    levels = " > ".join(f"{len(level):,}" for level in tree.levels)
    grouped = ", grouped by their centroids" if tree.tree.grouped else ""
    return (
        f"{manifest.documents:,} documents, {manifest.rows:,} rows in {manifest.leaves:,} leaves of "
        f"{router}{grouped}; nodes of each level: {levels}"
    )


def _examples(tree: "Inspection", depth: int) -> dict[str, list[str]]:
    nodes = [node for level in tree.levels[:depth] for node in level if node.size]
    titles, queries = tree.titles([name for node in nodes for name in node.documents]), tree.queries
    examples = {}
    for node in nodes:
        texts_of = [titles.get(name) or name for name in node.documents], queries[node.level - 1][node.number]
        kinds = zip(("documents", "queries"), texts_of, strict=True)
        examples[node.name] = [
            f"{kind}: {' | '.join(short(text, SHORT) for text in texts)}" for kind, texts in kinds if texts
        ]
    return examples


def _below(
    tree: "Inspection", node: "Node", depth: int, examples: dict[str, list[str]], indent: int = 0
) -> Iterator[str]:
    for child in tree.children(node):
        yield "  " * indent + line(child)
        yield from ("  " * indent + "      " + example for example in examples.get(child.name, []))
        if child.level < depth:
            yield from _below(tree, child, depth, examples, indent + 1)


def short(text: str, most: int) -> str:
    """Shorten a text to a line of at most `most` characters.

    >>> short("one  two", 10), short("one two three", 10)
    ('one two', 'one two t…')
    """
    plain = " ".join(text.split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def line(node: "Node") -> str:
    return f"{node.name}  {node.size:,}  {' '.join(node.keywords[:WORDS])}".rstrip()


def _one(tree: "Inspection", node: "Node") -> Iterator[str]:
    for indent, ancestor in enumerate(tree.above(node)):
        yield "  " * indent + line(ancestor)
    titles = tree.titles(node.documents)
    yield "documents:"
    yield from (f"  {name}  {short(titles.get(name, ''), WIDTH)}".rstrip() for name in node.documents)
    queries = tree.queries[node.level - 1][node.number]
    if queries:
        yield "queries:"
        yield from (f"  {short(text, WIDTH)}" for text in queries)
    if children := tree.children(node):
        yield "below:"
        yield from (f"  {line(child)}" for child in children)


def _path(steps: "Sequence[PathStep]") -> Iterator[str]:
    for indent, step in enumerate(steps):
        yield "  " * indent + f"{step.probability:.3f}  {line(step.node)}"


def _depth(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_DEPTH:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: 1 to {MOST_DEPTH}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
