"""Read YAML and `--set` pairs into a `JobSpec`. A mistake raises `InputError` with key, line and allowed values."""

import difflib
import os
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from rayhier.spec.base import UnusedKeysError
from rayhier.spec.errors import InputError
from rayhier.spec.job import JobSpec, with_partner
from rayhier.spec.removed import advice

MAX_BYTES = 1_000_000
"""Largest number of bytes of a spec file."""
MAX_SHOWN = 12
"""Largest number of mistakes that one error message shows."""
CLOSE = 0.75
"""Least similarity (difflib's ratio) of a known key that a message suggests instead of an unknown key."""

KeyPath = tuple[str | int, ...]


def load(spec: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> JobSpec:
    """Read a spec, a YAML file or a mapping with the same keys, and apply overrides.

    An override is `KEY=VALUE` with a dotted key, such as `train.epochs=5`. Raises InputError with one line for each
    mistake: `FILE:LINE: KEY: got VALUE; allowed: VALUES`.
    """
    if not isinstance(spec, str | os.PathLike | Mapping):
        raise InputError(f"spec: got {type(spec).__name__}; allowed: a YAML file's path, or a mapping with its keys")
    if isinstance(spec, Mapping):
        file, lines, tree = "spec", dict[KeyPath, int](), _plain(spec)
    else:
        file = str(Path(spec))
        node, lines = _compose(_read(Path(spec)), file)
        tree = _construct(node, file)
        if not isinstance(tree, dict):
            raise InputError(f"{file}: got {_show(tree)}; allowed: a mapping with the keys {_names(JobSpec)}")
    sources = {}
    for override in overrides:
        key = _set(tree, override)
        sources[key] = f"--set {_cut(override)}"
    tree = with_partner(tree)
    try:
        return JobSpec.model_validate(tree)
    except ValidationError as error:
        raise InputError("\n".join(_messages(error, tree, file, lines, sources))) from None


def _plain(value: Any) -> Any:
    """Copy a mapping, with what it holds, into the types that YAML gives: dicts, lists, and values."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


# YAML


class _Loader(yaml.SafeLoader):
    """YAML loader that reads 1e-3 as a number, and `yes` and dates as text, as YAML 1.2 does."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":timestamp"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError(f"{file}: larger than a spec may be (at most {MAX_BYTES} bytes)")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None


def _compose(text: str, name: str) -> tuple[yaml.Node, dict[KeyPath, int]]:
    """Parse YAML into a tree, and find the line of each key path."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(text for text in (error.context, error.problem) if text)
        raise InputError(f"{_spot(name, error.problem_mark)}: not YAML: {problem}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not YAML: {error}") from None
    except RecursionError:
        raise InputError(f"{name}: nested too deeply for a spec") from None
    if node is None:
        raise InputError(f"{name}: empty; allowed: a mapping with the keys {_names(JobSpec)}")
    return node, dict(_lines(node, name, set()))


def _lines(node: yaml.Node, name: str, visited: set[int], path: KeyPath = ()) -> Iterator[tuple[KeyPath, int]]:
    """Yield key paths with their lines. InputError for repeated keys, aliases, and keys that are not text."""
    if id(node) in visited:
        raise InputError(f"{name}:{node.start_mark.line + 1}: aliases (*) are not allowed in a spec")
    visited.add(id(node))
    entries: list[tuple[str | int, int, yaml.Node]] = []
    if isinstance(node, yaml.SequenceNode):
        entries = [(number, value.start_mark.line + 1, value) for number, value in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        keys: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                key_text = _show(key.value) if isinstance(key, yaml.ScalarNode) else "that is not text"
                raise InputError(f"{name}:{line}: got a key {key_text}; allowed: a word")
            if key.value in keys:
                first = keys[key.value]
                raise InputError(
                    f"{name}:{line}: {key.value}: given twice (first on line {first}); allowed: each key once"
                )
            keys[key.value] = line
            entries.append((key.value, line, value))
    for part, line, value in entries:
        yield (*path, part), line
        yield from _lines(value, name, visited, (*path, part))


def _construct(node: yaml.Node, name: str) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    except (yaml.YAMLError, ValueError) as error:
        problem = getattr(error, "problem", None) or error
        raise InputError(f"{_spot(name, getattr(error, 'problem_mark', None))}: not YAML: {problem}") from None


def _spot(name: str, mark: yaml.Mark | None) -> str:
    """Return FILE:LINE of a mark. A `--set` has one line, so only its name is returned."""
    return name if mark is None or name.startswith("--set ") else f"{name}:{mark.line + 1}"


# --set


def _set(tree: dict[str, Any], override: str) -> KeyPath:
    """Write one `KEY=VALUE` into the tree and return the key's path."""
    key, equals, text = override.partition("=")
    name = f"--set {_cut(override)}"
    if not equals or not key or "" in key.split("."):
        raise InputError(f"{name}: got {_show(override)}; allowed: KEY=VALUE, for instance train.epochs=5")
    value = _construct(_compose(text, name)[0], name) if text else None
    path = tuple(key.split("."))
    section = tree
    for part in path[:-1]:
        if section.get(part) is None:
            section[part] = {}
        section = section[part]
        if not isinstance(section, dict):
            raise InputError(f"{name}: {part} holds {_show(section)}, no section; allowed: a key inside a section")
    section[path[-1]] = value
    return path


# Messages


def _messages(
    error: ValidationError,
    tree: dict[str, Any],
    file: str,
    lines: dict[KeyPath, int],
    sources: dict[KeyPath, str],
) -> Iterator[str]:
    """Yield a message for each wrong key. Texts of several members of a union are joined by "or"."""
    allowed: dict[KeyPath, list[str]] = {}
    for problem in error.errors(include_url=False):
        if not problem["loc"] and problem["type"] == "value_error":  # about the whole spec: the message names the key
            message = str(problem["ctx"]["error"])
            yield f"{_place(tuple(message.partition(':')[0].split('.')), file, lines, sources)}: {message}"
            continue
        path = _clean(problem["loc"], tree)
        unused = problem.get("ctx", {}).get("error")
        if isinstance(unused, UnusedKeysError):
            for key in unused.keys:
                allowed.setdefault((*path, key), []).append(f"the default, others {unused.where}")
            continue
        if problem["type"] == "union_tag_invalid":
            path = (*path, "type")
        if problem["type"] == "too_short" and _at(tree, path)[0]:
            continue  # items are reported one by one, and pydantic counts only valid items
        allowed.setdefault(path, []).append(_allowed(dict(problem), path, tree))
    within = {path[:size] for path in allowed for size in range(len(path))}
    for path in within & allowed.keys():  # for a mapping or a number, the mapping's mistakes are enough
        if isinstance(_at(tree, path)[0], dict):
            del allowed[path]
    for path, texts in list(allowed.items())[:MAX_SHOWN]:
        key = ".".join(str(part) for part in path)
        value, present = _at(tree, path)
        got = f"got {_show(value)}" if present else "missing"
        instead = advice(".".join(part for part in path if isinstance(part, str)), value)
        said = f"allowed: {' or '.join(dict.fromkeys(texts))}" if instead is None else f"removed; {instead}"
        yield f"{_place(path, file, lines, sources)}: {key or 'the spec'}: {got}; {said}"
    if len(allowed) > MAX_SHOWN:
        yield f"… and {len(allowed) - MAX_SHOWN} more mistakes"


def _place(path: KeyPath, file: str, lines: dict[KeyPath, int], sources: dict[KeyPath, str]) -> str:
    """Return the `--set` or line that set a key: of the key or its section, else a `--set` inside the key."""
    prefixes = [path[:size] for size in range(len(path), 0, -1)]
    for prefix in prefixes:
        if prefix in sources:
            return sources[prefix]
    for prefix in prefixes:
        if prefix in lines:
            return f"{file}:{lines[prefix]}"
    below = (name for key, name in sources.items() if path and key[: len(path)] == path)
    return next(below, file)


def _clean(location: Sequence[str | int], tree: Any) -> KeyPath:
    """Remove the names of union members, which are not keys of the file, from pydantic's location."""
    path: list[str | int] = []
    branch, named = tree, False
    for number, part in enumerate(location):
        last = number == len(location) - 1
        if isinstance(branch, dict) and branch.get("type") == part and not named:
            named = True  # a union's member may have a key with the member's name
        elif isinstance(branch, dict) and (part in branch or (last and part not in _TAGS)):
            path.append(part)
            branch, named = branch.get(part), False
        elif isinstance(branch, list) and isinstance(part, int):
            path.append(part)
            branch, named = branch[part] if part < len(branch) else None, False
    return tuple(path)


_TAGS = {"int", "float", "str", "literal['auto']", "constrained-int"}


def _allowed(problem: dict[str, Any], path: KeyPath, tree: Any) -> str:
    context = problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            section = _section(path[:-1], tree)
            close = difflib.get_close_matches(str(path[-1]), list(section), n=1, cutoff=CLOSE)
            hint = f" (did you mean {close[0]}?)" if close else ""
            return ", ".join(section) + hint
        case "union_tag_invalid":
            return str(context["expected_tags"])
        case "union_tag_not_found":
            return "a mapping with a type"
        case "literal_error":
            return str(context["expected"])
        case "value_error":
            return str(context["error"])
        case "missing":
            return "a value: this key is required"
        case "model_type" | "model_attributes_type":
            return f"a mapping with the keys {', '.join(_section(path, tree))}"
        case "int_parsing" | "int_type" | "int_from_float":
            return "a whole number"
        case "float_parsing" | "float_type":
            return "a number"
        case "string_type":
            return "text"
        case "tuple_type":
            return "a list"
        case "too_short":
            return f"at least {context['min_length']} values"
        case _:
            message = str(problem["msg"])
            return re.sub(r"^(Input|String|Value|List) should (be|have|match) ", "", message)


def _section(path: KeyPath, tree: Any) -> dict[str, Any]:
    """Return the fields of the section at a key path. `type` in the section chooses among the members of a union."""
    fields: dict[str, Any] = dict(JobSpec.model_fields)
    for part in path:
        if part not in fields:
            return {}
        tree = tree.get(part) if isinstance(tree, dict) else None
        models = list(_models(fields[str(part)].annotation))
        named = [model for model in models if isinstance(tree, dict) and tree.get("type") in _types(model)]
        fields = {key: field for model in named or models for key, field in _keys(model).items()}
    return fields


def _types(model: type[BaseModel]) -> tuple[Any, ...]:
    return get_args(model.model_fields["type"].annotation) if "type" in model.model_fields else ()


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if get_origin(annotation) is Annotated:
        yield from _models(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _models(member)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def _names(model: type[BaseModel]) -> str:
    return ", ".join(_keys(model))


def _keys(model: type[BaseModel]) -> dict[str, Any]:
    """Return a section's fields by their keys in a spec. For instance, `lambda` is the key of the field `lam`."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _at(tree: Any, path: KeyPath) -> tuple[Any, bool]:
    """Return the value at a key path, and True if the key exists."""
    for part in path:
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return None, False
    return tree, True


def _show(value: Any) -> str:
    return "null" if value is None else _cut(repr(value))


def _cut(text: str) -> str:
    text = re.sub(r"(?<=://)[^/@\s]+(?=@)", "…", text)  # a name and a password in an address
    return text if len(text) <= 80 else text[:77] + "…"
