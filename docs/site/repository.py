"""Pages of files outside docs/: README.md is the first page, and each file or folder that a page links to is one.

So the same links serve readers of the repository and of the site.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FRONT = "README.md"
SPECS = sorted(f"specs/{path.name}" for path in (ROOT / "specs").glob("*.yaml"))
"""Pages whether a page links to them or not."""
PICTURES = (".png", ".svg")
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)\s#]+)")
LANGUAGES = {".json": "json", ".py": "python", ".yaml": "yaml", "": "docker"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for README.md, each shipped spec, and each file outside docs/ that a page links to, in turn."""
    pages = (_name(file.src_uri) for file in files.documentation_pages())
    waiting = [FRONT, *SPECS, *(name for name in pages if name)]
    made: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in made or not (ROOT / name).exists():  # such a link is MkDocs' to report
            continue
        made.add(name)
        if not files.get_file_from_path(_place(name)):
            files.append(File.generated(config, _place(name), content=_content(name)))
        if name.endswith((".md", ".ipynb")) or (ROOT / name).is_dir():
            waiting += _links(name)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links of a page lead to the pages that stand for files of the repository."""
    here = _name(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        return posixpath.relpath(_place(_target(here, link[1])), posixpath.dirname(page.file.src_uri) or ".")

    return LINK.sub(moved, markdown) if here else markdown


def _links(name: str) -> list[str]:
    """Files and folders of the repository that a page links to, or that lie in a folder."""
    path = ROOT / name
    if path.is_dir():
        return [f"{name}/{file.name}" for file in sorted(path.iterdir()) if file.is_file()]
    return [_target(name, link[1]) for link in LINK.finditer(path.read_text()) if not link[1].endswith(PICTURES)]


def _target(name: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), link))


def _place(name: str) -> str:
    """Where the site has a file of the repository: below docs/ as there, others below repository/."""
    if name == FRONT:
        return "index.md"
    place = name.removeprefix("docs/") if name.startswith("docs/") else f"repository/{name}"
    place = place.replace(".ipynb", ".md")
    return place if place.endswith((".md", *PICTURES)) else f"{place}.md"


def _name(place: str) -> str | None:
    """File of the repository that a page stands for; None where it stands for none."""
    if place == "index.md":
        return FRONT
    name = place.removeprefix("repository/") if place.startswith("repository/") else f"docs/{place}"
    names = (name, name.removesuffix(".md") + ".ipynb", name.removesuffix(".md"))
    return next((each for each in names if (ROOT / each).is_file()), None)


def _content(name: str) -> str:
    """Page of a file: its Markdown, its text as code, or the list of a folder's files."""
    path = ROOT / name
    if path.is_dir():
        here = posixpath.dirname(_place(name)) or "."
        lines = [f"- [{_title(link)}]({posixpath.relpath(_place(link), here)})" for link in _links(name)]
        return f"# {path.name}\n\n" + "\n".join(lines)
    text = path.read_text()
    if path.suffix == ".md":
        return text
    return f"# {name}\n\n````{LANGUAGES.get(PurePosixPath(name).suffix, 'text')}\n{text}\n````\n"


def _title(name: str) -> str:
    """Heading of a page; name of any other file."""
    if name.endswith(".md"):
        return (ROOT / name).read_text().partition("\n")[0].lstrip("# ")
    return PurePosixPath(name).name
