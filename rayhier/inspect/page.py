"""One HTML page of a tree, complete in itself: nodes by size, search over keywords, paths of documents and queries."""

import json
from pathlib import Path
from typing import Any

from rayhier.index.nodes import Node
from rayhier.inspect.nodes import Inspection, PathStep
from rayhier.spec import InputError
from rayhier.storage import files

TEMPLATE = Path(__file__).with_name("page.html")
DATA = "/* data */"
"""Placeholder in the page's template, which the page's data replace."""
MOST_NODES = 20_000
"""Most nodes that a page shows."""
MOST_PATHS = 2_000
"""Most documents, and most queries, whose paths a page shows."""


def write_page(tree: Inspection, file: Path, depth: int) -> tuple[int, int]:
    """Write the page of the first `depth` levels of a tree; returns its size in bytes and its number of nodes.

    InputError where the tree has too many nodes for a page, or the file cannot be written.
    """
    nodes = [node for level in tree.levels[:depth] for node in level if node.size]
    if len(nodes) > MOST_NODES:
        raise InputError(f"--depth: got {depth}, {len(nodes):,} nodes; allowed: at most {MOST_NODES:,} nodes")
    text = TEMPLATE.read_text("utf-8").replace(DATA, data(tree, nodes))
    try:
        files.replace(file.absolute(), text.encode())
    except OSError as error:
        raise InputError(f"--html: {file} cannot be written: {error.strerror}") from None
    return len(text.encode()), len(nodes)


def data(tree: Inspection, nodes: list[Node]) -> str:
    """Make the data of the page, as JSON in which `<`, `>` and `&` are escaped, so that no text can end the script."""
    queries = tree.queries
    titles = tree.titles([name for node in nodes for name in node.documents])
    shown = {
        "heading": {"name": tree.now.spec.name, "documents": tree.there.manifest.documents},
        "nodes": [_node(node, queries[node.level - 1][node.number]) for node in nodes],
        "titles": titles,
        "paths": _paths(tree, nodes, queries),
    }
    plain = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    return plain


def _node(node: Node, queries: list[str]) -> dict[str, Any]:
    return {
        "id": node.name,
        "parent": f"{node.level - 1}:{node.parent}" if node.level > 1 else None,
        "size": node.size,
        "keywords": node.keywords,
        "documents": node.documents,
        "queries": queries,
    }


def _paths(tree: Inspection, nodes: list[Node], queries: list[list[list[str]]]) -> dict[str, dict[str, Any]]:
    documents = [*dict.fromkeys(name for node in nodes for name in node.documents)][:MOST_PATHS]
    texts = [*dict.fromkeys(text for node in nodes for text in queries[node.level - 1][node.number])][:MOST_PATHS]
    paths = {"documents": tree.documents(documents), "queries": tree.asked(texts)}
    return {kind: {name: _steps(path) for name, path in group.items()} for kind, group in paths.items()}


def _steps(steps: list[PathStep]) -> list[tuple[str, float]]:
    return [(step.node.name, round(step.probability, 4)) for step in steps]
