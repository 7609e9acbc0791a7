"""Pages of the reference: the spec by its JSON Schema, commands by their help, Python by its docstrings."""

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import rayhier
from rayhier.__main__ import COMMANDS, main
from rayhier.spec import JobSpec

ROOT = Path(__file__).parents[2]
RUN = ("rayhier.run", "_Run.__call__")
"""`rayhier.run` is a module that can be called."""
Schema = dict[str, Any]


def anchor(title: str, separator: str = "-") -> str:
    """Anchor of a heading, as hosts of repositories make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", separator)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let the site have the anchors of such hosts."""
    config.mdx_configs["toc"]["slugify"] = anchor
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    pages = {"spec": spec_page(), "shell": shell_page(), "python": python_page(), "adapters": adapters_page()}
    for name, content in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def shell_page() -> str:
    """Page of the commands: what each prints for --help."""
    parts = ["# Shell, command by command"]
    commands = [[name] for name in COMMANDS] + [
        ["index", name] for name in re.findall(r"^    (\w+) ", _help(["index"]), re.M)
    ]
    for command in sorted(commands):
        parts += [f"## rayhier {' '.join(command)}", f"```text\n{_help(command)}```"]
    return "\n\n".join(parts)


def _help(command: list[str]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return printed.getvalue()


def python_page() -> str:
    """Page of the public names."""
    intro = "`import rayhier` has these names. [Python](../python.md) shows them at work."
    package = griffe.load("rayhier", search_paths=[ROOT])
    return "\n\n".join(["# Python, name by name", intro, *(_public_name(name, package) for name in rayhier.__all__)])


def _public_name(name: str, package: Any) -> str:
    """Part of the page about a public name: a function under that name, a class as its module has it."""
    module, attribute = rayhier.PLACES.get(name, RUN)
    place = f"{module}.{attribute}"
    found = package[place.removeprefix("rayhier.")]
    if isinstance(found, griffe.Function) and found.docstring:
        signature = found.signature(return_type=True, name=f"rayhier.{name}")
        return f"## rayhier.{name}\n\n```python\n{signature}\n```\n\n{found.docstring.value}"
    options = f"{{heading: rayhier.{name}, toc_label: rayhier.{name}}}"
    if name != "JobSpec":
        return f"::: {place}\n    options: {options}"
    return f"::: {place}\n    options: {options[:-1]}, members: false}}\n\n[Spec, key by key](spec.md) has its keys."


def adapters_page() -> str:
    """Page of the adapters, module by module."""
    modules = sorted(path.stem for path in (ROOT / "rayhier" / "adapters").glob("*.py") if path.stem != "__init__")
    intro = "Adapters put an index behind other libraries' interfaces: [which and how](../neighbours.md)."
    parts = [f"::: rayhier.adapters.{module}" for module in modules]
    return "\n\n".join(["# Adapters", intro, *parts])


def spec_page() -> str:
    """Page of the spec: each section, each key with its values, default and description."""
    schema = JobSpec.model_json_schema()
    shipped = [f"[{path.stem}](../repository/specs/{path.name}.md)" for path in sorted((ROOT / "specs").glob("*.yaml"))]
    intro = "What `rayhier run --schema` prints, to be read. [Specs](../specs.md) explains the sections."
    lines = ["# Spec, key by key", intro, f"Shipped specs: {', '.join(shipped)}."]
    for name, value in schema["properties"].items():
        lines += [f"## {name}", _text(value)]
        groups = list(_groups(schema["$defs"], name, value))
        if not groups:
            lines.append(f"{_values(value, {}).capitalize()}; must be given.")
        for group in groups:
            lines += group
    return "\n\n".join(line for line in lines if line)


def _groups(sections: Schema, key: str, value: Schema) -> Iterator[list[str]]:
    """Lines of each section that stands at `key`, then of the sections inside them, each once."""
    waiting, places = [(key, "", name) for name in _sections(value)], dict[str, list[tuple[str, str]]]()
    for path, of, name in waiting:
        places.setdefault(name, []).append((path, of))
        if len(places[name]) > 1:
            continue
        kind = sections[name]["properties"].get("type", {}).get("const", "")
        inner = f"{path}.type {kind}" if kind else of
        for field, each in sections[name]["properties"].items():
            waiting += [(f"{path}.{field}", inner, below) for below in _sections(each)]
    shared = Counter(path for found in places.values() for path in {path for path, _ in found})
    titles = {name: _title(sections[name], found, shared) for name, found in places.items()}
    for name, title in titles.items():
        section = sections[name]
        needed = section.get("required", [])
        rows = [_row(field, each, needed, titles) for field, each in section["properties"].items()]
        head = ["| key | values | default | |", "|---|---|---|---|"]
        heading = "" if title == f"`{key}`" else f"### {title}"
        yield [heading, _text(section), "\n".join([*head, *rows])]


def _title(section: Schema, places: list[tuple[str, str]], shared: Counter[str]) -> str:
    """Heading of a section: its places, and where other sections share them its type, or that of what it stands in."""
    kind = section["properties"].get("type", {})
    kinds = [kind["const"]] if "const" in kind else kind.get("enum", [])
    paths = list(dict.fromkeys(path for path, _ in places))
    title = ", ".join(f"`{path}`" for path in paths)
    if kinds:
        return f"{title} of type {' or '.join(f'`{each}`' for each in kinds)}"
    owners = ", ".join(dict.fromkeys(of for _, of in places))
    return f"{title}, with {owners}" if max(shared[path] for path in paths) > 1 else title


def _sections(value: Schema) -> list[str]:
    """Names of the sections that a value may be, or hold."""
    found = re.findall(r'"\$ref": "#/\$defs/(\w+)"', json.dumps(value))
    return list(dict.fromkeys(found))


def _row(field: str, value: Schema, required: list[str], titles: dict[str, str]) -> str:
    default = "must be given" if field in required else _default(value.get("default"))
    return f"| `{field}` | {_values(value, titles)} | {default} | {_text(value)} |"


def _default(value: Any) -> str:
    match value:
        case None:
            return "none"
        case {}:
            return "its defaults" if value else "empty"
        case list():
            return ", ".join(f"`{each}`" for each in value)
        case bool():
            return f"`{str(value).lower()}`"
        case int() | float():
            return f"{value:,}"
        case _:
            return f"`{value}`"


def _values(value: Schema, titles: dict[str, str]) -> str:
    """What may be given, in words."""
    match value:
        case {"$ref": str(place)}:
            name = place.rpartition("/")[2]
            return f"[section](#{anchor(titles[name])})"
        case {"anyOf": list(kinds)} | {"oneOf": list(kinds)}:
            return " or ".join(_values(kind, titles) for kind in kinds if kind.get("type") != "null")
        case {"const": given}:
            return f"`{given}`"
        case {"enum": list(given)}:
            return ", ".join(f"`{each}`" for each in given)
        case {"type": "array"}:
            return f"list of {_values(value.get('items', {}), titles)}"
        case {"type": "object"}:
            return "mapping"
        case {"type": "boolean"}:
            return "`true`, `false`"
        case {"type": "integer" | "number" as kind}:
            return ("whole number" if kind == "integer" else "number") + _bounds(value)
    return "text"


def _bounds(value: Schema) -> str:
    said = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    bounds = [f"{words} {value[name]:,}" for name, words in said.items() if name in value]
    return f", {', '.join(bounds)}" if bounds else ""


def _text(value: Schema) -> str:
    """Description, in one line that a table can hold."""
    return " ".join(value.get("description", "").replace("|", "\\|").split())
