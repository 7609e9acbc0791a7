"""Code blocks of README.md and the guides: what each is, and the commands in it."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "results").glob("*.md"))]
MARKDOWN = MarkdownIt("commonmark").enable("table")
SHELL = {"cd", ".", "cat", "echo", "export", "umask"}
OUTSIDE = {*SHELL, "pip", "openssl", "chmod", "git", "serve", "docker", "kind", "helm", "kubectl"}
"""Programs whose arguments no test reads, except the files that kubectl applies."""
PROGRAMS = {"rayhier", "python", "curl", "make", "ray", *OUTSIDE}
ADDRESS = "http://127.0.0.1:8000"
"""Where the guides' server listens."""
KINDS = {"python": "python", "pycon": "python", "yaml": "spec", "json": "body"}
PRINTED = ("README.md", "1  0.")
"""What the Python above prints."""
OUTPUT = [
    PRINTED,
    ("README.md", "Training with BM25: nDCG@10"),
    ("ARCHITECTURE.md", "spec ──> corpus"),
    ("ARCHITECTURE.md", "shell, Python, batch"),
    ("ARCHITECTURE.md", "PUT /v1/documents"),
    ("cluster.md", "error: workdir: got 'runs/quickstart'"),
    ("corpora.md", "4,284 rows are rejected"),
    ("formats.md", "WORKDIR/"),
    ("rag.md", "chain = ("),
    ("report.md", "Training with BM25: nDCG@10"),
    ("errors.md", '{"error"'),
    ("filters.md", "error: --filter.and[1].yaer"),
    ("filters.md", "documents that match: 20"),
]
"""Page and how its block begins: drawings, messages that a test of their own makes, lines of a run of minutes."""


@dataclass(frozen=True)
class Block:
    """A fenced or indented block of code."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def kind(self):
        """What the block is: python, shell, spec, body, rows or output; fails for anything else."""
        first = self.text.lstrip()
        if self.language in KINDS:
            return KINDS[self.language]
        assert self.language in ("", "console", "text"), f"{self}: language {self.language!r}"
        if any(self.begins(one) for one in OUTPUT):
            return "output"
        starts = {">>> ": "python", "{": "body", "documents: ": "rows"}
        found = ["shell"] if is_command(first) else [kind for start, kind in starts.items() if first.startswith(start)]
        assert found, f"{self}: what is {first[:80]!r}? Name its language, or put it in OUTPUT"
        return found[0]

    def begins(self, output):
        return self.page.name == output[0] and self.text.lstrip().startswith(output[1])

    def __str__(self):
        return f"{self.page.name}:{self.line}"


def is_command(line):
    return line.startswith("$ ") or line.split(" ")[0] in PROGRAMS


BLOCKS = [
    Block(page, token.map[0] + 1, token.info, token.content.rstrip("\n"))
    for page in PAGES
    for token in MARKDOWN.parse(page.read_text())
    if token.type in ("fence", "code_block")
]


def each(kind):
    return pytest.mark.parametrize("block", [block for block in BLOCKS if block.kind == kind], ids=str)


def commands(block):
    found, lines = [], iter(block.text.splitlines())
    for line in lines:
        if not is_command(line):
            found[-1][1].append(line)
            continue
        while line.endswith("\\"):
            line = line[:-1] + next(lines)
        words, printed = shlex.split(line.removeprefix("$ "), comments=True), []
        while "&&" in words:
            found.append((words[: words.index("&&")], []))
            words = words[words.index("&&") + 1 :]
        found.append((words, printed))
    return found
