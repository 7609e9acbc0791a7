"""README and guides: links lead somewhere, commands exist, public names and options are explained."""

import re
import tomllib
from pathlib import Path

import pytest

import rayhier
from rayhier.serve.args import RequestLimits

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def named(pages):
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.stem)


def anchors(page):
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@named(PAGES)
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_is_short_and_names_every_guide():
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 120
    linked = set(re.findall(r"\]\(docs/(\w+\.md)", readme))
    assert {"choosing.md", "python.md", "troubleshooting.md", "ARCHITECTURE.md", "glossary.md", "serving.md"} <= linked


def test_the_changelog_has_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    titles = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert version in titles[:2]
    assert titles[0] in (version, "Unreleased")


def test_every_public_name_is_explained():
    guide = (ROOT / "docs" / "python.md").read_text()
    assert [name for name in rayhier.__all__ if f"`rayhier.{name}" not in guide] == []


def test_every_limit_of_requests_is_explained():
    guide = (ROOT / "docs" / "serving.md").read_text()
    assert [
        name for name in RequestLimits.model_fields if f"`{name}`" not in guide and f"limits.{name}" not in guide
    ] == []


def test_every_folder_of_the_package_is_on_the_map():
    guide = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    folders = [folder.name for folder in (ROOT / "rayhier").iterdir() if (folder / "__init__.py").exists()]
    assert [name for name in folders if f"`{name}/" not in guide] == []
