"""Code blocks of README.md and the guides: what each is, and the commands in it."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKDOWN = MarkdownIt("commonmark").enable("table")
PROGRAMS = {"rayhier", "python", "curl", "make", "git", "cd", ".", "cat", "serve", "ray"}
ADDRESS = "http://127.0.0.1:8000"
"""Where the guides' server listens."""

PRINTED = "what the Python above prints"
RUN = "lines of a run of minutes, whose figures are of one machine"
ERROR = "a message that a test of its own makes"
DRAWN = "drawn in characters"
OUTPUT = {
    ("README.md", "Training: nDCG@10 of exact search"): RUN,
    ("README.md", "1  0."): PRINTED,
    ("ARCHITECTURE.md", "spec ──> corpus"): DRAWN,
    ("ARCHITECTURE.md", "shell, Python, batch"): DRAWN,
    ("ARCHITECTURE.md", "PUT /v1/documents"): DRAWN,
    ("cluster.md", "error: workdir: got 'runs/quickstart'"): ERROR,
    ("corpora.md", "documents: 7,"): RUN,
    ("corpora.md", "generate: runs/scifact-hce"): RUN,
    ("filters.md", "error: --filter.and[1].yaer"): ERROR,
    ("filters.md", "documents that match: 40"): ERROR,
    ("results.md", "- Training: nDCG@10 of exact search"): RUN,
    ("specs.md", "Beam: dev chose a beam of"): RUN,
}
"""Page and how its block begins -> why the block is nothing that could be run or read."""


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
        match self.language:
            case "python" | "pycon":
                return "python"
            case "yaml":
                return "spec"
            case "json":
                return "body"
            case "" | "console" | "text":
                pass
            case _:
                pytest.fail(f"{self}: language {self.language!r}")
        if any(first.startswith(begin) for name, begin in OUTPUT if name == self.page.name):
            return "output"
        if first.startswith(">>> "):
            return "python"
        if is_command(first):
            return "shell"
        if first.startswith("{"):
            return "body"
        if first.startswith("documents: "):
            return "rows"
        return pytest.fail(f"{self}: what is {first[:80]!r}? Name its language, or why it is output, in OUTPUT")

    def __str__(self):
        return f"{self.page.name}:{self.line}"


def is_command(line):
    return line.startswith("$ ") or line.split(" ")[0] in PROGRAMS


def blocks_of(page):
    for token in MARKDOWN.parse(page.read_text()):
        if token.type in ("fence", "code_block"):
            yield Block(page, token.map[0] + 1, token.info, token.content.rstrip("\n"))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def each(kind):
    return pytest.mark.parametrize("block", [block for block in BLOCKS if block.kind == kind], ids=str)


def pages(blocks):
    return pytest.mark.parametrize(
        "page", list(dict.fromkeys(block.page for block in blocks)), ids=lambda page: page.stem
    )


def commands(block):
    """(Words, printed lines) of each command of a block."""
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
