"""The documentation as a site: it builds with warnings as errors, loads nothing from elsewhere, leaves nothing out."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import rayhier
from rayhier.spec import JobSpec
from rayhier.spec.encoder import EncoderSpec

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "results").glob("*.md"))]
SHAPES = ("pre", "tr", "li", "h2", "h3")
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
CONFIG = "docs/site/mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", CONFIG, "-d", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


class Read(HTMLParser):
    """Elements of a page, or of its text alone, and what it loads."""

    def __init__(self, text, within="html"):
        super().__init__()
        self.within, self.inside = within, within == "html"
        self.elements, self.loads, self.ids = Counter(), [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.inside = self.inside or tag == self.within
        if self.inside:
            self.elements[tag] += 1
            self.ids.add(given.get("id"))
        if tag in LOADS and given.get(LOADS[tag]):
            self.loads.append(given[LOADS[tag]])

    def handle_endtag(self, tag):
        self.inside = self.inside and (self.within == "html" or tag != self.within)


def place(page):
    return "index.html" if page.name == "README.md" else f"{page.relative_to(ROOT / 'docs').with_suffix('.html')}"


def html(site, page):
    return (site / place(page)).read_text()


def test_pages_load_nothing_from_other_hosts(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(GUIDES)
    for page in pages:
        loads = Read(page.read_text()).loads
        assert loads
        assert [load for load in loads if re.match(r"(\w+:)?//", load)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(['\"]?|@import ['\"])(https?:)?//", sheet.read_text()), sheet


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_page_reads_as_in_the_repository(site, page):
    """Lists, tables, headings and code are as many as CommonMark has, by which hosts of repositories show pages."""
    here = Read(html(site, page), "article").elements
    there = Read(MarkdownIt().enable("table").render(page.read_text())).elements
    assert {shape: here[shape] for shape in SHAPES} == {shape: there[shape] for shape in SHAPES}


def test_the_search_finds_every_page(site):
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    pages = {entry["location"].partition("#")[0] for entry in entries}
    assert {"index.html", "quickstart.html", *map(place, GUIDES)} <= pages
    assert next(entry for entry in entries if entry["location"] == "reference/spec.html#encoder")["text"]
    assert [entry for entry in entries if "relative density" in entry["text"]]


def test_the_reference_has_every_public_name_and_section(site):
    titles = re.findall(r'<h2 id="[^"]*"[^>]*>(.*?)<a', (site / "reference" / "python.html").read_text(), re.DOTALL)
    named = [re.sub(r"<[^>]+>", "", title).strip() for title in titles]
    assert named == [f"rayhier.{name}" for name in rayhier.__all__]
    spec = Read((site / "reference" / "spec.html").read_text(), "article")
    assert set(JobSpec.model_fields) <= spec.ids
    assert {
        "train-of-type-contrast",
        "router-of-type-learned_ivf",
        "corpus-of-type-jsonl-or-parquet-or-csv",
    } <= spec.ids
    adapters = (site / "reference" / "adapters.html").read_text()
    assert [
        name for name in ("langchain", "haystack", "llama_index", "pyterrier", "mteb") if name not in adapters
    ] == []


def test_the_reference_says_what_the_docstrings_say(site):
    page = " ".join(re.sub(r"<[^>]+>", "", (site / "reference" / "python.html").read_text()).split())
    assert "Find the best k documents of a query" in page
    assert "rayhier.open(workdir: str | os.PathLike[str]) -&gt; Index" in page
    spec = (site / "reference" / "spec.html").read_text()
    assert EncoderSpec.model_fields["max_length"].description in spec
