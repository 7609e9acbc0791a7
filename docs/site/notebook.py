"""Pages of notebooks: text as it is, code and what it printed as blocks of code, plots as pictures."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and a file for each picture in it."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        notebook = json.loads(Path(str(file.abs_src_path)).read_text())
        stem = file.src_uri.removesuffix(".ipynb")
        pictures: list[bytes] = []
        lines = [block for cell in notebook["cells"] for block in _blocks(cell, stem, pictures)]
        files.append(File.generated(config, f"{stem}.md", content="\n\n".join(lines)))
        for number, picture in enumerate(pictures):
            files.append(File.generated(config, f"{stem}-{number}.png", content=picture))
    return files


def _blocks(cell: dict[str, Any], stem: str, pictures: list[bytes]) -> Iterator[str]:
    """Markdown of a cell; its pictures are appended to `pictures`."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        shown = output.get("data", {})
        if "image/png" in shown:
            yield f"![What the code above plots]({stem.rpartition('/')[2]}-{len(pictures)}.png)"
            pictures.append(base64.b64decode(shown["image/png"]))
        elif text := "".join(output.get("text", shown.get("text/plain", ""))):
            yield f"```text\n{text.rstrip()}\n```"
