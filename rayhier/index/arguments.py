"""Arguments of `rayhier index` for a workdir or the address of a server."""

import argparse
from collections.abc import Callable
from pathlib import Path

from rayhier.corpus.row_checks import encodes
from rayhier.spec import InputError


def of_documents(command: Callable[[str, str], argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the commands add, delete, get and list. Returns the parser of add."""
    adding = command("add", "add documents, without training")
    adding.add_argument(
        "file", type=Path, help=".jsonl, .csv, .tsv or .parquet, a document a row. Parquet may have a column `vector`"
    )
    adding.add_argument("--upsert", action="store_true", help="replace documents whose ids are in the index already")
    deleting = command("delete", "delete documents")
    deleting.add_argument("ids", nargs="*", metavar="ID", help="id of a document")
    deleting.add_argument("--file", type=Path, help="file of ids, one on each line")
    getting = command("get", "print documents as JSON, one per line")
    getting.add_argument("ids", nargs="+", metavar="ID", help="id of a document")
    listing = command("list", "print documents as JSON, one per line, ordered by id")
    listing.add_argument("--after", default="", metavar="ID", help="show documents after this id (default: all)")
    listing.add_argument("--limit", type=positive, default=100, help="most documents to show (default 100)")
    for parser in (adding, deleting, getting, listing):
        parser.add_argument("--token-file", type=Path, help="file with one line, the token of requests to a server")
    return adding


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: 1 or more")
    return int(text)


def ids(options: argparse.Namespace) -> list[str]:
    """Return the ids of the command line and of `--file`. InputError if one is not UTF-8, or if reading fails."""
    if not all(map(encodes, options.ids)):
        raise InputError("ids: got an id that is not UTF-8; allowed: ids of documents in the index")
    if getattr(options, "file", None) is None:
        return list(options.ids)
    lines = text_of(options.file, "--file").split("\n")
    return [*options.ids, *(line for line_read in lines if (line := line_read.removesuffix("\r")))]


def text_of(file: Path, name: str) -> str:
    try:
        return file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: {file} cannot be read: {error}") from None
