"""Make a corpus from docstrings of Python's standard library: the first sentence is a query, the rest its document.

The library's files are parsed, never imported.
"""

import ast
import functools
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rayhier.corpus.reader import Stream
from rayhier.corpus.row_checks import Entry, Judgement, Reason, Rejection, RowError, beginning, digest, entry
from rayhier.corpus.split import assign
from rayhier.spec.corpus import Limits, PythonDocs

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo"}
SKIPPED |= {"ensurepip", "__pycache__"}
SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.!?](?=\s)")
SHORTEST_REST = 40
LONGEST_SUMMARY = 200
"""Largest number of characters of a query. If the first sentence is longer, the query is the sentence's first line."""

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Docstring:
    source: str
    line: int
    name: str
    text: str


@dataclass(slots=True)
class Docstrings:
    """Documents and their queries, in the same order, and rejected docstrings as (file, line, rejection)."""

    read: int = 0
    documents: list[Entry] = field(default_factory=list)
    queries: list[Entry] = field(default_factory=list)
    rejected: list[tuple[str, int, Rejection]] = field(default_factory=list)


@dataclass(frozen=True)
class DocstringReader:
    docstrings: Docstrings

    def queries(self) -> Iterator[Stream[Entry]]:
        yield Stream("docstrings", iter(self.docstrings.queries))

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:
        queries, documents = self.docstrings.queries, self.docstrings.documents
        splits = assign({query.key: query.text for query in queries})
        judged = (Judgement(query.key, document.key, 1) for query, document in zip(queries, documents, strict=True))
        yield Stream("docstrings", (row for row in judged if splits[row.query_id] == split))


def reader(spec: PythonDocs) -> DocstringReader:
    return DocstringReader(pairs(Path(sysconfig.get_paths()["stdlib"]), spec.limits))


@functools.lru_cache(maxsize=1)  # a run in one process reads them twice: for the corpus and for the test queries
def pairs(library: Path, limits: Limits) -> Docstrings:
    """Make queries and documents from Python files below a folder. A file that does not parse is a rejected row."""
    result = Docstrings()
    texts: set[bytes] = set()
    names: Counter[str] = Counter()
    for path in python_files(library):
        source = path.relative_to(library).as_posix()
        code = path.read_bytes()
        try:
            docstrings = list(read(code, source))
        except RowError as error:
            result.read += 1
            result.rejected.append((source, 1, Rejection(error.reason, beginning(code))))
            continue
        for docstring in docstrings:
            result.read += 1
            names[docstring.name] += 1
            try:
                document, query = pair(docstring, names[docstring.name], limits)
                text = digest(_normal(document.text))
                if text in texts:
                    raise RowError(Reason.REPEATED_TEXT)
            except RowError as error:
                result.rejected.append((source, docstring.line, Rejection(error.reason, beginning(docstring.text))))
                continue
            texts.add(text)
            result.documents.append(document)
            result.queries.append(query)
    return result


def python_files(library: Path) -> list[Path]:
    """List the Python files below a folder, without tests, tools and installed packages, sorted."""
    named = ((path, path.relative_to(library).with_suffix("").parts) for path in library.rglob("*.py"))
    wanted = (path for path, parts in named if not SKIPPED & {*parts} and all(part.isidentifier() for part in parts))
    return sorted(path for path in wanted if path.is_file())


def read(code: bytes, source: str) -> Iterator[Docstring]:
    """Yield the docstrings of a module, its classes and functions. RowError if `code` does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise RowError(Reason.NOT_PYTHON) from None
    parts = source.removesuffix(".py").split("/")
    yield from _walk(tree, ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts), source)


def pair(docstring: Docstring, recurrence: int, limits: Limits) -> tuple[Entry, Entry]:
    """Make (document, query). A name's second document has the id `name#2`. RowError if no pair can be made."""
    summary, rest = divide(docstring.text)
    if not rest:
        raise RowError(Reason.SUMMARY_ONLY)
    if len(_normal(rest)) < SHORTEST_REST:
        raise RowError(Reason.SHORT_REST)
    key = docstring.name if recurrence == 1 else f"{docstring.name}#{recurrence}"
    if len(f"q:{key}") > limits.id:
        raise RowError(Reason.ID_TOO_LONG)
    document = entry(key, docstring.name, rest, limits)
    query = entry(f"q:{key}", "", summary, limits)
    if any(_normal(query.text) in _normal(shown) for shown in (document.title, document.text)):
        raise RowError(Reason.CONTAINS_QUERY)
    return document, query


def divide(docstring: str) -> tuple[str, str]:
    """Divide a docstring in two: the first sentence in one line, and the text after that sentence."""
    text = docstring.strip()
    paragraph = re.split(r"\n\s*\n", text, maxsplit=1)[0]
    sentence = re.search(SENTENCE_END, paragraph)
    end = sentence.end() if sentence else len(paragraph)
    if end > LONGEST_SUMMARY:
        end = len(paragraph.split("\n", 1)[0])
    return " ".join(text[:end].split()), text[end:].strip()


def _walk(node: Definition, name: str, source: str) -> Iterator[Docstring]:
    text = ast.get_docstring(node)
    if text and text.strip():
        yield Docstring(source, node.body[0].lineno, name, text)
    for child in _definitions(node):
        yield from _walk(child, f"{name}.{child.name}", source)


def _definitions(node: ast.AST) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield classes and functions directly inside a node, and those inside its `if` and `try`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        elif not isinstance(child, ast.expr):  # no expression holds a definition, and most nodes are expressions
            yield from _definitions(child)


def _normal(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".!?:;, ")
