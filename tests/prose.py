"""Finds prose that is hard to read, in user pages, docstrings and messages: `python -m tests.prose [FILE …]`.

`make check` runs it. Code, tables, and lists of shapes are not prose.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
MOST_WORDS = 22
RULES = {
    "semicolon": r";(?!\s*allowed)",
    "say `if`": r"(?<!says )(?<!know )(?<!place )(?<!folder )(?<!machine )\bwhere\b(?! to\b)",
    "banned word": r"\b(beside|anew|of (its|their|his) own|stands?|asked|whether)\b",
    "number without 0": r"(?<![\w.\])%])\.\d",
}
"""Name of a rule -> what breaks it."""
SMALL = re.compile(
    r"(an?|and|are|as|at|by|for|from|is|its?|of|or|the|this|to|with|all|each|compute|get|make|return|yield)s?"
)
"""Words that add nothing to a name."""

Found = tuple[int, str, str]
"""Line, rule, and text that breaks it."""


def broken(line: int, text: str) -> Iterator[Found]:
    """Yield the rules that a paragraph of prose breaks."""
    text = re.sub(r"``.+?``|`[^`]*`", "Code", " ".join(text.split()))
    for sentence in re.split(r"(?<=[.!?])[)\"'*_]*\s+(?=[\"'(*_]*(?:[A-Z0-9]|rayhier))", text):
        words = re.findall(r"\S*\w\S*", sentence)
        if len(words) > MOST_WORDS:
            yield line, f"{len(words)} words", sentence
        for rule, pattern in RULES.items():
            if re.search(pattern, sentence, re.IGNORECASE):
                yield line, rule, sentence


def of_page(text: str) -> Iterator[Found]:
    table = False
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        table = token.type == "table_open" or (table and token.type != "table_close")
        if token.type == "inline" and not table and token.map:
            parts = (
                "Code" if part.type == "code_inline" else " " if part.type == "softbreak" else part.content
                for part in token.children or []
                if part.type != "image"
            )
            yield from broken(token.map[0] + 1, "".join(parts))


def of_module(text: str) -> Iterator[Found]:
    tree, skipped = ast.parse(text), set[int]()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for before, child in zip([None, *body], body, strict=False) if isinstance(body, list) else ():
            match child:
                case ast.Expr(value=ast.Constant(value=str(said)) as docstring):
                    skipped.add(id(docstring))
                    yield from of_docstring(child.lineno, said, ast.unparse(before)[:80] if before else named(node))
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values) if id(node) not in skipped:
                yield from of_message(node.lineno, "".join(map(shown, values)))
                skipped |= {id(part) for value in values for part in ast.walk(value)}
            case ast.Constant(value=str(said)) if id(node) not in skipped:
                yield from of_message(node.lineno, said)


def named(node: ast.AST) -> str:
    return getattr(node, "name", "")


def shown(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "Code"


def of_docstring(line: int, text: str, name: str) -> Iterator[Found]:
    if name and roots(text) <= roots(re.sub(r"([A-Z])", r" \1", name)):
        yield line, "repeats the name", text
    for paragraph in re.split(r"\n\s*\n|\n\s*(?=- )", text):
        if not re.match(r"\s*(>>>|Shapes?:|\||[A-Z]+: )", paragraph):
            yield from broken(line, paragraph)


def roots(text: str) -> set[str]:
    return {word.rstrip("s") for word in re.findall(r"[a-z]+", text.lower()) if not SMALL.fullmatch(word)}


def of_message(line: int, text: str) -> Iterator[Found]:
    if len(re.findall(r"[a-z]{2,} ", text)) > 3 and "\n  " not in text and "  " not in text.strip():
        yield from broken(line, text)


def main() -> int:
    paths = [Path(name).resolve() for name in sys.argv[1:]] or [*PAGES, *sorted((ROOT / "rayhier").rglob("*.py"))]
    count = 0
    for path in paths:
        if path.exists():
            of = of_module if path.suffix == ".py" else of_page
            for line, rule, sentence in of(path.read_text().split("\n## 0.")[0]):  # CHANGELOG: unreleased
                print(f"{path.relative_to(ROOT)}:{line}: {rule}: {sentence}")
                count += 1
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
