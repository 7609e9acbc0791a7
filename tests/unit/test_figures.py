"""Each figure of README and the scoreboard is that of docs/figures.json, or of the page of results that has it."""

import json
import re
from pathlib import Path

import pytest

from .code_blocks import BLOCKS, ROOT

FIGURES = {name: figure["value"] for name, figure in json.loads((ROOT / "docs" / "figures.json").read_text()).items()}
ROWS = (
    "scifact, all",
    "scifact, new answers",
    "oewn_examples, all",
    "oewn_examples, new answers",
    "acl_title2abs, all",
)
RESULTS = ROOT / "docs" / "results"
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\d*\.\d)")


def test_a_row_of_the_readme_has_the_figures_of_its_collection():
    rows = re.findall(r"^\| .*\d.*\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    for row, of in zip(rows, ROWS, strict=True):
        first, before, after, gain = (cell.strip(" *") for cell in row.strip("|").split("|"))
        values = [f"{FIGURES[f'{of}, {system}, nDCG@10']:.2f}" for system in ("untouched", "shipped")]
        told = [f"{FIGURES[f'{of}, gain{end}']:.0f}" for end in ("", ", low", ", high")]
        assert [before, after, re.findall(r"-?\d+", gain)] == [*values, [f"{int(value)}" for value in told]], row
        assert f"{FIGURES[f'{of}, queries']:,.0f} queries" in first
        if of.endswith("all"):
            assert f"{FIGURES[of.replace('all', 'documents')]:,.0f} documents" in first


def test_the_readme_is_short_and_its_other_decimals_are_output():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 90
    assert len(DECIMAL.findall(text)) <= 30
    before = text[: text.index("    git clone")]
    assert len(re.findall(r"\S*\w\S*", before)) <= 250
    shown = "\n".join(block.text for block in BLOCKS if block.page.name == "README.md")
    prose = set(DECIMAL.findall(re.sub(r"^\|.*$", "", text, flags=re.MULTILINE))) - {"3.11", "2.0"}
    assert {number for number in prose if number not in shown} == set()


@pytest.mark.parametrize("page", ["choosing.md", "how-it-works.md", "faq.md"])
def test_a_guide_has_no_measured_decimals(page):
    text = re.sub(r"`[^`]*`", "", (ROOT / "docs" / page).read_text())
    assert DECIMAL.findall(text) == []


def test_a_figure_of_the_scoreboard_is_on_the_page_that_its_row_names():
    table = (RESULTS / "scoreboard.md").read_text()
    for line in table.splitlines():
        if not (page := re.search(r"\]\((\w+\.md)[^)]*\) \|$", line)) or not line.startswith("| "):
            continue
        text = Path(RESULTS, page[1]).read_text()
        own = re.sub(r"\b0\.[12]\.0\b|\[.*", "", line)
        assert [number for number in DECIMAL.findall(own) if number not in text] == [], line
