"""Train and index a folder with the spec of `rayhier init`, and serve a page to search it: `rayhier try DIR`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import rayhier
from rayhier import init
from rayhier.command import Parser, run_command
from rayhier.progress import say
from rayhier.serve import __main__ as serve
from rayhier.serve.config import LOOPBACK, PORT, check_free
from rayhier.spec import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing, then serve until Ctrl-C. Returns the exit code of the run if it fails."""
    given = _parser().parse_args(arguments)
    workdir = Path(given.workdir or Path("runs", init.name_of(given.folder)))
    code = run_command(lambda: _make(given, workdir), stopped="stopped: run the same command again to go on")
    return code or serve.main([str(workdir), "--port", str(given.port)])


def _make(given: argparse.Namespace, workdir: Path) -> None:
    if "://" in (given.workdir or ""):
        raise InputError(f"--workdir: got {given.workdir!r}; allowed: a folder on this machine")
    check_free(LOOPBACK[0], given.port)
    spec = workdir / "try.yaml"
    if not spec.exists():
        say(init.write(given.folder, spec, workdir))
    elif f" found in {given.folder}. " not in spec.read_text("utf-8").partition("\n")[0]:
        raise InputError(f"--workdir: {spec} is about other data; allowed: a workdir without it")
    else:
        say(f"{spec} exists and is used again")
    rayhier.run(spec)


def _parser() -> Parser:
    says = "Look at a folder of your data, train and index, and serve a page to search it. A second call continues."
    parser = Parser(prog="rayhier try", description=says, allow_abbrev=False)
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of your data, or the file of your documents")
    parser.add_argument("--port", type=int, default=PORT, help=f"port of the page (default: {PORT})")
    parser.add_argument("--workdir", help="folder of spec and results (default: runs/ and the name of DIR)")
    return parser
