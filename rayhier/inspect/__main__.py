"""Show the tree of an index, or the path of a document or a query through the tree: `rayhier inspect WORKDIR`."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayhier.command import run_command
from rayhier.spec import InputError
from rayhier.storage.paths import locate

if TYPE_CHECKING:
    from rayhier.index.nodes import Node
    from rayhier.inspect.nodes import Inspection, PathStep

DEPTH, MOST_DEPTH = 3, 16
"""DEPTH: number of levels shown by default. MOST_DEPTH: most levels that `--depth` allows."""
WORDS, WIDTH, SHORT = 8, 100, 40
"""WORDS: most keywords in a line. WIDTH: most characters of a text that fills a line. SHORT: most characters of a text
that shares a line."""
TEMPLATE = Path(__file__).with_name("page.html")
DATA = "/* data */"
"""Placeholder in the template of the page, which the page's data replace."""
MOST_NODES = 20_000
MOST_PATHS = 2_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tree, a node or a path, or write an HTML page. Returns exit code 2 after a user's mistake, else 0."""
    options = _parser().parse_args(arguments)
    return run_command(lambda: _show(options))


def _show(options: argparse.Namespace) -> None:
    from rayhier.corpus.row_checks import encodes
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
    parser.add_argument("workdir", help="folder, or s3:// or gs:// prefix, of a run that built an index")
    parser.add_argument("--depth", type=_depth, default=DEPTH, help=f"levels shown (default {DEPTH})")
    parser.add_argument("--brief", action="store_true", help="show the tree without documents and queries")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--node", metavar="LEVEL:NUMBER", help="show one node, its place, and what it holds")
    only.add_argument("--document", metavar="ID", help="show the path of a document, with probabilities")
    only.add_argument("--query", metavar="TEXT", help="show the path of a query, with probabilities")
    only.add_argument("--html", type=Path, metavar="FILE", help="write a page that needs no other file")
    return parser


def _lines(options: argparse.Namespace, tree: "Inspection") -> Iterator[str]:
    if options.node is not None:
        yield from _one(tree, tree.node(options.node))
    elif options.document is not None:
        yield from _path(tree.document(options.document))
    elif options.query is not None:
        yield from _path(tree.query(options.query))
    elif options.html is not None:
        size, nodes = _write_page(tree, options.html, options.depth)
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
        f"{router}{grouped}, nodes of each level: {levels}"
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


def _write_page(tree: "Inspection", file: Path, depth: int) -> tuple[int, int]:
    """Write the page of the first `depth` levels. Returns numbers of bytes and nodes. InputError for too many nodes."""
    from rayhier.storage import files

    nodes = [node for level in tree.levels[:depth] for node in level if node.size]
    if len(nodes) > MOST_NODES:
        raise InputError(f"--depth: got {depth}, {len(nodes):,} nodes; allowed: at most {MOST_NODES:,} nodes")
    text = TEMPLATE.read_text("utf-8").replace(DATA, _data(tree, nodes))
    try:
        files.replace(file.absolute(), text.encode())
    except OSError as error:
        raise InputError(f"--html: {file} cannot be written: {error.strerror}") from None
    return len(text.encode()), len(nodes)


def _data(tree: "Inspection", nodes: list["Node"]) -> str:
    """Make the data of the page as JSON. `<`, `>` and `&` are escaped, so that no text can end the script."""
    queries = tree.queries
    titles = tree.titles([name for node in nodes for name in node.documents])
    shown = {
        "heading": {"name": tree.now.spec.name, "documents": tree.there.manifest.documents},
        "nodes": [_shown(node, queries[node.level - 1][node.number]) for node in nodes],
        "titles": titles,
        "paths": _all_paths(tree, nodes, queries),
    }
    plain = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    return plain


def _shown(node: "Node", queries: list[str]) -> dict[str, Any]:
    return {
        "id": node.name,
        "parent": f"{node.level - 1}:{node.parent}" if node.level > 1 else None,
        "size": node.size,
        "keywords": node.keywords,
        "documents": node.documents,
        "queries": queries,
    }


def _all_paths(tree: "Inspection", nodes: list["Node"], queries: list[list[list[str]]]) -> dict[str, dict[str, Any]]:
    documents = [*dict.fromkeys(name for node in nodes for name in node.documents)][:MOST_PATHS]
    texts = [*dict.fromkeys(text for node in nodes for text in queries[node.level - 1][node.number])][:MOST_PATHS]
    paths = {"documents": tree.documents(documents), "queries": tree.asked(texts)}
    return {
        kind: {name: [(step.node.name, round(step.probability, 4)) for step in path] for name, path in group.items()}
        for kind, group in paths.items()
    }


def _depth(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_DEPTH:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: 1 to {MOST_DEPTH}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
