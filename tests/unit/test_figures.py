"""Each figure of README and the scoreboard is that of docs/figures.json, or of the page of results that has it."""

import json
import re

import pytest

from .code_blocks import BLOCKS, ROOT

FIGURES = {name: figure["value"] for name, figure in json.loads((ROOT / "docs" / "figures.json").read_text()).items()}
ROWS = (
    "scifact, all",
    "scifact, new answers",
    "oewn_examples, all",
    "acl_title2abs, all",
    "cranfield, all",
)
RESULTS = ROOT / "docs" / "results"
NUMBER = re.compile(r"(?<![\w.,])\d[\d.,]*(?![\w])")
WORDS = {"95", "99", "10", "1"}
"""Numbers of a scoreboard's row that are no measured figures."""
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\d*\.\d)")


def test_a_row_of_the_readme_has_the_figures_of_its_collection():
    rows = re.findall(r"^\| .*\d.*\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    for row, of in zip(rows, ROWS, strict=True):
        first, train, before, after, gain = (cell.strip(" *") for cell in row.strip("|").split("|"))
        values = [f"{FIGURES[f'{of}, {system}, nDCG@10']:.2f}" for system in ("untouched", "shipped")]
        told = [f"{FIGURES[f'{of}, gain{end}']:.0f}" for end in ("", ", low", ", high")]
        assert [before, after, re.findall(r"-?\d+", gain)] == [*values, [f"{int(value)}" for value in told]], row
        assert f"{FIGURES[f'{of}, queries']:,.0f} queries" in first
        if of.endswith("all"):
            taught = FIGURES[of.replace("all", "train queries")]
            assert train == (f"{taught:,.0f}" if taught else "none")
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
    rows = [row for row in table.splitlines() if row.startswith("| ") and re.search(r"\]\(\w+\.md[^)]*\) \|$", row)]
    assert len(rows) > 25
    for row in rows:
        page = re.search(r"\]\((\w+\.md)[^)]*\) \|$", row)[1]
        have = {number.strip(".,") for number in NUMBER.findall((RESULTS / page).read_text())}
        cells = " | ".join(row.split("|")[2:4])
        wanted = {number.strip(".,") for number in NUMBER.findall(cells)} - WORDS
        missing = {number for number in wanted if number not in have and f"0.{number}" not in have}
        assert missing == set(), row


def test_answers_on_the_scoreboard_are_in_the_order_of_its_columns():
    rows = re.findall(r"^\| .*\(answers\.md\) \|$", (RESULTS / "scoreboard.md").read_text(), re.MULTILINE)[:6]
    of = ("scifact, all", "scifact, new answers", "oewn_examples, all", "oewn_examples, new answers")
    for row, name in zip(rows, (*of, "acl_title2abs, all", "cranfield, all"), strict=True):
        told = re.findall(r"\b0\.\d+", row)
        assert told == [f"{FIGURES[f'{name}, {system}, nDCG@10']:.3f}" for system in ("shipped", "untouched")]


def test_pages_show_one_run_of_the_quickstart():
    pages = ("README.md", "docs/specs.md", "docs/report.md")
    shown = {
        re.search(r"^    Training with BM25: nDCG@10 .*(?:\n    .+){3}", (ROOT / page).read_text(), re.M)[0]
        for page in pages
    }
    assert len(shown) == 1
