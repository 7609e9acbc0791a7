"""Measure the tests: change one line of rayhier, and see whether a test notices the change.

`python -m benchmarks.mutate --count 60 --seed 0` draws lines and changes them one by one, in a copy of the tree.
The unit tests of the line's package run first. Without `--coverage`, all other tests run next. With a data file of
coverage.py, the tests that ran this line run next. The integration tests run last, as no data file tells what Ray's
workers ran. This command writes a data file:

    coverage run --source=rayhier -m pytest -p benchmarks.mutate -m "not slow"

All tests must pass before you begin, because a test that always fails would notice every change.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "runs", "__pycache__", ".*_cache", ".hypothesis", "build", "dist")
SIGNS = """Lt < <=, LtE <= <, Gt > >=, GtE >= >, Eq == !=, NotEq != ==, Is is is_not, IsNot is_not is, In in not_in,
NotIn not_in in, And and or, Or or and, Add + -, Sub - +, Mult * /, Div / *"""
SWAPS = {name: (old.replace("_", " "), new.replace("_", " ")) for name, old, new in map(str.split, SIGNS.split(","))}
Edit = tuple[int, int, int | None, int | None, str, str]
"""Line and byte of the start, the same of the end, what is replaced there, by what. `""` is all, and `{}` keeps it."""


@dataclass(frozen=True)
class Site:
    """A change of one line."""

    file: str
    line: str
    """Without the spaces around it."""
    becomes: str
    number: int
    first: int
    """The line where the statement begins, or 0 if it runs at import."""

    def key(self) -> tuple[str, str, str]:
        """What stays the same when other lines change."""
        return self.file, self.line, self.becomes

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {self.line}  ->  {self.becomes}"


def sites(file: Path) -> Iterator[Site]:
    """Every change of a file that one line holds."""
    text, name = file.read_text(), str(file.relative_to(ROOT))
    lines = text.encode().split(b"\n")
    for (number, start, last, end, old, new), first in _found(ast.parse(text), 0, False):
        line = lines[number - 1]
        part = line[start:end].decode()
        if last == number and old in part:
            changed = part.replace(old, new, 1) if old else new.replace("{}", part)
            becomes = line[:start] + changed.encode() + line[end:]
            yield Site(name, line.decode().strip(), becomes.decode().strip(), number, first)


def _found(node: ast.AST, first: int, inside: bool) -> Iterator[tuple[Edit, int]]:
    """Edits in a node, and where their statements begin. Messages and annotations are left out."""
    match node:
        case ast.FunctionDef(name="__repr__") | ast.JoinedStr() | ast.If(test=ast.Name("TYPE_CHECKING")):
            return
        case ast.stmt():
            first = node.lineno
    yield from ((edit, first if inside else 0) for edit in _edits(node))
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list") and not isinstance(node, ast.Raise):
            runs = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and name == "body"
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _found(child, first, inside or runs)


def _edits(node: ast.AST) -> Iterator[Edit]:
    """Edits of a node itself."""
    match node:
        case ast.Compare(left, signs, rights):
            yield from map(_sign, [left, *rights], signs, rights)
        case ast.BoolOp(sign, values):
            yield from (_sign(left, sign, right) for left, right in pairwise(values))
        case ast.BinOp(left, sign, right) | ast.AugAssign(left, sign, right) if type(sign).__name__ in SWAPS:
            if not any(_text(side) for side in (left, right)):
                yield _sign(left, sign, right)
        case ast.UnaryOp(ast.Not()):
            yield node.lineno, node.col_offset, node.lineno, node.col_offset + len("not "), "not ", ""
        case ast.Constant(bool(value)):
            yield _whole(node, str(not value))
        case ast.Constant(int(value)):
            yield _whole(node, str(value + 1))
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield node.lineno, node.col_offset + len("return "), node.end_lineno, node.end_col_offset, "", "None"
        case ast.Raise() | ast.Expr(ast.Call() | ast.Await(ast.Call())):
            yield _whole(node, "pass")
        case ast.If(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test]):
            if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
                yield _whole(test, "not ({})")


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _sign(left: ast.expr, sign: ast.AST, right: ast.expr) -> Edit:
    """Swap the sign between two operands."""
    last = left.end_lineno or left.lineno
    return last, left.end_col_offset or 0, right.lineno, right.col_offset, *SWAPS[type(sign).__name__]


def _whole(node: ast.stmt | ast.expr, new: str) -> Edit:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, "", new


def drawn(found: list[Site], count: int, seed: int) -> list[Site]:
    """Draw lines, all with equal chances, and one change of each line."""
    ordered = sorted(found, key=lambda site: (site.file, site.number))
    lines = [list(group) for _, group in groupby(ordered, lambda site: (site.file, site.number))]
    chance = random.Random(seed)
    return [chance.choice(line) for line in chance.sample(lines, min(count, len(lines)))]


def again(found: list[Site], was: Site) -> Site | None:
    """Find a recorded site in the present sources, the nearest one if several are equal. Print it if it is gone."""
    same = [site for site in found if site.key() == was.key()]
    if not same:
        print(f"{was}: gone")
    return min(same, key=lambda site: abs(site.number - was.number), default=None)


def recorded(file: Path | None) -> dict[Site, str]:
    """Read the sites of a record, with the test that noticed each change."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
    return {Site(**{name: row[name] for name in Site.__dataclass_fields__}): row["noticed"] for row in rows}


def covering(data: Path, site: Site) -> list[str]:
    """Tests that ran a line, or any line of its file if it runs at import. A fixture means all tests of its file."""
    tests: set[str] = set()
    query = """SELECT context, numbits FROM line_bits JOIN file ON file.id = file_id
               JOIN context ON context.id = context_id WHERE context != '' AND path LIKE ?"""
    with closing(sqlite3.connect(data)) as database:
        for context, bits in database.execute(query, [f"%/{site.file}"]):
            numbers = range(site.first, site.number + 1) if site.first else range(8 * len(bits))
            if any(bits[number // 8] >> number % 8 & 1 for number in numbers if number < 8 * len(bits)):
                tests.add(context)
    return sorted(test for test in tests if test == _file(test) or _file(test) not in tests)


def _file(test: str) -> str:
    return test.split("::")[0]


def stages(site: Site, options: argparse.Namespace) -> Iterator[list[str]]:
    """Arguments of one pytest run after another, the most likely to notice first."""
    package = Path("tests/unit", *Path(site.file).parts[1:-1])
    while not (ROOT / package).is_dir():
        package = package.parent
    beside = sorted((ROOT / package).glob("test_*.py")) if package.name == "unit" else [ROOT / package]
    near = [str(path.relative_to(ROOT)) for path in beside]
    if options.tests:
        yield options.tests
    elif options.coverage:
        tests = covering(options.coverage, site)
        first = [test for test in tests if any(Path(_file(test)).is_relative_to(path) for path in near)]
        yield from (first, near, [test for test in tests if test not in first])
        yield [] if options.brief else ["tests/integration"]
    else:
        yield from (near, ["tests", *(f"--ignore={path}" for path in near)])


def failure(copy: Path, tests: list[str], minutes: float) -> str:
    """Run tests in a copy of the tree. Return the first failed test, or `""` if none fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    own = {"RAYHIER_DATA": str(ROOT.parent / "shared" / "data"), **os.environ, "PYTHONPATH": str(copy)}
    with tempfile.TemporaryFile("w+") as said:
        kept: dict[str, Any] = {"stdout": said, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = subprocess.Popen(command, cwd=copy, env=own, **kept)
        try:
            code = process.wait(60 * minutes)
        except subprocess.TimeoutExpired:
            return f"the time limit of {minutes:g} minutes"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        text = said.read()
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    return (re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", text, re.M) or text.split("\n")[-2:-1] or [str(code)])[-1]


def noticed(copy: Path, site: Site, options: argparse.Namespace) -> str:
    """Change a line in the copy while its tests run. Return what noticed the change, or `""` if nothing did."""
    file = copy / site.file
    whole, times = file.read_bytes(), file.stat()
    lines = whole.decode().split("\n")
    lines[site.number - 1] = lines[site.number - 1].replace(site.line, site.becomes)
    file.write_text("\n".join(lines))
    try:
        return next(
            filter(None, (failure(copy, tests, options.minutes) for tests in stages(site, options) if tests)), ""
        )
    finally:
        file.write_bytes(whole)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def main() -> None:
    """Draw, change, test, print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutate", description="Change lines of rayhier, and run the tests."
    )
    parser.add_argument("--count", type=int, default=60, help="number of lines to change (default 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--under", nargs="+", default=["rayhier"], help="files or folders whose lines are changed")
    parser.add_argument("--tests", nargs="+", default=[], help="the only tests that run")
    parser.add_argument("--list", action="store_true", help="print the changes, and run nothing")
    parser.add_argument("--coverage", type=Path, help="data file of coverage.py")
    parser.add_argument("--brief", action="store_true", help="with --coverage: leave out the integration tests")
    parser.add_argument(
        "--minutes", type=float, default=15, help="limit of a pytest run. A longer run counts as noticed"
    )
    parser.add_argument("--record", type=Path, help="keep outcomes here, and do not repeat those that it has")
    parser.add_argument("--again", type=Path, help="a record whose changes are made again, instead of drawn ones")
    options = parser.parse_args()
    files = {file for name in options.under for file in [Path(name), *Path(name).rglob("*.py")] if file.is_file()}
    found = [site for file in sorted(files) for site in sites(ROOT / file)]
    chosen = drawn(found, options.count, options.seed)
    if options.again:
        chosen = [site for was in recorded(options.again) if (site := again(found, was))]
    outcomes = {site.key(): outcome for site, outcome in recorded(options.record).items()}
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(ROOT, Path(folder) / "rayhier", ignore=LEFT_OUT)
        for site in chosen:
            print(site, end="\n" if options.list else ": ", flush=True)
            if not options.list:
                if site.key() not in outcomes:
                    outcomes[site.key()] = noticed(copy, site, options)
                    if options.record:
                        with options.record.open("a") as record:
                            print(json.dumps({**asdict(site), "noticed": outcomes[site.key()]}), file=record)
                print(f"noticed by {outcomes[site.key()]}" if outcomes[site.key()] else "SURVIVED", flush=True)
    if chosen and not options.list:
        count = sum(bool(outcomes[site.key()]) for site in chosen)
        print(f"{count} of {len(chosen)} noticed, {count / len(chosen):.0%}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Under coverage: a fixture's lines belong to the test file."""
    import_module("coverage").Coverage.current().switch_context(_file(item.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Under coverage: what runs now belongs to the test."""
    import_module("coverage").Coverage.current().switch_context(item.nodeid.split("[")[0])


if __name__ == "__main__":
    main()
