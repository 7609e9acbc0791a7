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

from ..toys import job
from .code_blocks import BLOCKS, OUTPUT, OUTSIDE, ROOT, commands, each
from .serve.stand_ins import Canned, app_of

WRITTEN = ("SPEC", "mine.yaml", "my-documents.yaml")
"""Specs of pages that are no files of the repository. `rayhier init` writes them."""
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_block_is_of_a_kind_and_every_output_is_there():
    assert len(BLOCKS) > 60
    assert all(block.kind for block in BLOCKS)
    assert sorted(output for block in BLOCKS for output in OUTPUT if block.begins(output)) == sorted(OUTPUT)


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
        case ["rayhier", "run", *rest] | ["python", "-m", "rayhier.run", *rest]:
            check_run(arguments_of(rayhier.run.main, rest)[1], printed)
        case ["rayhier", *rest]:
            _, options = arguments_of(door.main, rest)
            if given := getattr(options, "filter", None):
                parse(json.loads(given), {"year": "int", "lang": "string"}, "--filter")
        case ["ray", "job", "submit", *rest]:
            check(rest[rest.index("--") + 1 :], printed)
        case ["python", file, *_] if file.endswith(".py"):
            assert (ROOT / file).is_file()
        case ["curl", *rest]:
            check_curl(rest, printed)
        case ["kubectl", "apply", *rest]:
            assert all((ROOT / file).is_file() for file in rest if file != "-f")
        case ["ray", command, *_]:
            assert command in ("get-auth-token", "start")
        case _:
            assert words[0] in OUTSIDE, words


def check_run(options, printed):
    """The spec that the command reads is accepted, or refused with what the page says."""
    spec = ROOT / options.spec if options.spec not in WRITTEN else ROOT / "specs" / "quickstart.yaml"
    shown = "\n".join(printed)
    if not shown.startswith("error: "):
        load(spec, options.set)
        return
    with pytest.raises(InputError) as refused:
        load(spec, options.set)
    assert re.fullmatch(re.escape(shown).replace("…", ".*"), f"error: {refused.value}")


def check_curl(words, printed):
    """The path takes such a body, and answers one as the page shows it; what ends with … is not read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-X")
    parser.add_argument("-d")
    options, rest = parser.parse_known_args(words)
    (url,) = [word for word in rest if re.match(r"(http://)?[\w.]+:\d+/", word)]
    method = options.X or ("POST" if options.d else "GET")
    path = "/" + url.removeprefix("http://").partition("/")[2]
    scope = {"type": "http", "method": method, "path": path, "headers": []}
    (route,) = [
        route
        for route in app_of(Canned()).router.routes
        if isinstance(route, APIRoute) and route.matches(scope)[0] == Match.FULL
    ]
    if options.d:
        route.body_field.field_info.annotation.model_validate_json(options.d)
    for line in printed:
        if line.startswith("{") and not line.endswith("…"):
            route.response_model.model_validate_json(line)


@each("shell")
def test_commands_are_taken(block):
    for words, printed in commands(block):
        check(words, printed)


@each("spec")
def test_specs_are_accepted(block):
    """A block is a part of a spec; where a section is there twice, each line is a part."""
    keys = re.findall(r"^(\w+):", block.text, re.MULTILINE)
    for part in [block.text] if len(keys) == len(set(keys)) else block.text.splitlines():
        base = {"corpus": {"type": "beir", "path": "data"}}
        assert isinstance(job(**(base | yaml.safe_load(part))), JobSpec)


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
