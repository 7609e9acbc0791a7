"""Call the module of a command, for `rayhier COMMAND …` and `python -m rayhier COMMAND …`."""

import argparse
import importlib
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from rayhier import completion
from rayhier.command import Parser, end, log_to_stderr

COMMANDS = {
    "try": ("rayhier.try_folder", "train, index and serve a folder of your data, in one command"),
    "init": ("rayhier.init", "look at your data and write a spec for it"),
    "run": ("rayhier.run", "train, index and measure what a spec describes"),
    "search": ("rayhier.search.__main__", "search a built index from the shell"),
    "eval": ("rayhier.evaluate.__main__", "measure a built index with other queries"),
    "serve": ("rayhier.serve.__main__", "serve a built index over HTTP"),
    "index": ("rayhier.index.__main__", "change, check and export a built index"),
    "upgrade": ("rayhier.index.upgrade", "bring a workdir of an older release to today's format"),
    "inspect": ("rayhier.inspect.__main__", "show an index's tree, by keywords and documents"),
}
"""Name of each command -> the module whose `main` runs the command, and the command's description in the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names. Returns its exit code. SystemExit 2 for an unknown command."""
    options = _parser().parse_args(arguments)
    if options.verbose:
        log_to_stderr()
    named = "".join(options.arguments[1:2])
    of_server = options.command == "index" and named.startswith(("http://", "https://"))
    command = importlib.import_module("rayhier.serve.shell" if of_server else COMMANDS[options.command][0])
    code: int = command.main(options.arguments)
    return code


class _Completion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: object, __: str | None = None) -> None:
        modules = {name: importlib.import_module(module) for name, (module, _) in COMMANDS.items()}
        parsers = {name: module._parser() for name, module in modules.items()}  # noqa: SLF001
        print(completion.script(str(shell), parsers), end="")
        parser.exit()


def _parser() -> Parser:
    listed = "\n".join(f"  {name:<9}{says}" for name, (_, says) in COMMANDS.items())
    parser = Parser(
        prog="rayhier",
        description="Adapts an encoder to your corpus, learns an index, measures the gain, and serves the index.",
        epilog=f"commands:\n{listed}\n\n`rayhier COMMAND --help` explains one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show the log on standard error")
    parser.add_argument("--version", action="version", version=f"rayhier {version('rayhier')}")
    shells = "print a script that completes commands and options: source <(rayhier --completion bash)"
    parser.add_argument("--completion", choices=completion.SHELLS, action=_Completion, help=shells)
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help="one of the commands below")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def command() -> NoReturn:
    end(main())


if __name__ == "__main__":
    command()
