"""README and guides: links lead somewhere, commands exist, public names and options are explained."""

import re
from pathlib import Path

import pytest

import rayhier
from rayhier.serve.args import RequestLimits

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "results").glob("*.md"))]


def anchors(page):
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_public_name_limit_and_folder_is_explained():
    pages = ("python", "errors", "ARCHITECTURE")
    python, errors, map_of = ((ROOT / "docs" / f"{name}.md").read_text() for name in pages)
    assert [name for name in rayhier.__all__ if f"`rayhier.{name}" not in python] == []
    limits = {name: field.default for name, field in RequestLimits.model_fields.items()}
    told = {name: f"{value:,}" if isinstance(value, int) else f"{value:g}" for name, value in limits.items()}
    assert [name for name, value in told.items() if f"`{name}` ({value})" not in errors] == []
    folders = [folder.name for folder in (ROOT / "rayhier").iterdir() if (folder / "__init__.py").exists()]
    assert [name for name in folders if f"`{name}/" not in map_of] == []
