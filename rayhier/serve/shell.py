"""`rayhier index add|delete|get|list http://…`: reads and changes documents of an index through its server."""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rayhier.command import run_command
from rayhier.corpus.document_file import Read, check_rows, read
from rayhier.corpus.row_checks import Entry, RowSchema
from rayhier.index.arguments import ids, of_documents, text_of
from rayhier.progress import Bar, counted, say
from rayhier.serve.client import Client
from rayhier.serve.errors import ApiError
from rayhier.serve.http.bodies import DocumentBody
from rayhier.spec import InputError
from rayhier.spec.corpus import ColumnNames, FieldType, Limits

TOGETHER, BYTES = 500, 1_000_000
"""Largest number of documents in a request, and most bytes of their texts and vectors, approximately."""
PAGE = 1_000
"""Largest number of documents that a request lists, or ids that it deletes."""
RETRIES = 20
"""Largest number of retries of a request if the server has no room for further changes, or its connection is cut."""
LONGEST = 1 << 40
"""Limit of a title, text or id, in characters, that none exceeds, so that only the server checks lengths."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    return run_command(lambda: _run(options), failures=(ApiError,))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rayhier index", description="Change and read the documents of a served index.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, says: str) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, help=says, description=says, allow_abbrev=False)
        parser.add_argument("url", help="address of the server, http://… or https://…")
        return parser

    adding = of_documents(command)
    for name in ColumnNames.model_fields:
        adding.add_argument(f"--{name}", default=name, metavar="NAME", help=f"column of the {name} (default {name})")
    return parser


def _run(options: argparse.Namespace) -> None:
    token = None if options.token_file is None else text_of(options.token_file, "--token-file").strip()
    try:
        with Client(options.url, token) as client, Client(options.url, token, retries=RETRIES) as patient:
            match options.command:
                case "add":
                    _add(patient, options, client.index().fields)
                case "delete":
                    client.index()  # report a missing server at once
                    _delete(patient, options)
                case "get":
                    for name in options.ids:
                        _print(client.document(name))
                case _:
                    _list(client, options)
    except ValueError as error:  # the client refuses a request that no server could answer
        raise InputError(str(error)) from None


def _add(client: Client, options: argparse.Namespace, fields: Mapping[str, FieldType]) -> None:
    columns = ColumnNames(id=options.id, title=options.title, text=options.text)
    schema = RowSchema(Limits(title=LONGEST, text=LONGEST, id=LONGEST), columns, fields)
    total = check_rows(options.file, (row for part in _parts(options.file, schema, vectors=False) for row in part.rows))
    written = replaced = log = 0
    with Bar("write", total, "documents") as bar:
        for documents in _batches(_documents(_parts(options.file, schema), schema)):
            try:
                told = client.put(documents, upsert=options.upsert)
            except ApiError as error:
                hint = ". Add --upsert to replace documents" if error.code == "exists" else ""
                why = error.message.replace(". Nothing was changed", "") + hint
                raise InputError(f"{written:,} documents were written. A request failed: {why}") from None
            written, replaced, log = written + told.documents, replaced + told.replaced, told.log
            bar.advance(told.documents)
    print(f"log {log}: {counted(written, None)} written, {replaced:,} of them in place of others")


def _parts(file: Path, schema: RowSchema, *, vectors: bool = True) -> Iterator[Read]:
    return read(file, schema, PAGE, vectors=vectors)


def _documents(parts: Iterable[Read], schema: RowSchema) -> Iterator[dict[str, Any]]:
    for part in parts:
        entries = [row for row in part.rows if isinstance(row, Entry)]
        vectors: Sequence[Any] = [None] * len(entries) if part.vectors is None else part.vectors.to_pylist()
        for row, vector in zip(entries, vectors, strict=True):
            fields = {name: value for name, value in zip(schema.fields, row.values, strict=True) if value is not None}
            document = {"id": row.key, "title": row.title, "text": row.text, "fields": fields}
            yield document if vector is None else {**document, "vector": vector}


def _batches(documents: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Gather documents into requests. In a request, either all documents have vectors or none has."""
    batch, size = list[dict[str, Any]](), 0
    for document in documents:
        bytes_ = 8 * len(document.get("vector", ())) + sum(len(document[name].encode()) for name in ("title", "text"))
        is_full = len(batch) == TOGETHER or size + bytes_ > BYTES
        if batch and (is_full or ("vector" in document) != ("vector" in batch[0])):
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += bytes_
    if batch:
        yield batch


def _delete(client: Client, options: argparse.Namespace) -> None:
    names = list(dict.fromkeys(ids(options)))
    if not names:
        raise InputError("ids: got none; allowed: ids of documents in the index")
    deleted = log = 0
    with Bar("delete", len(names), "documents") as bar:
        for begin in range(0, len(names), PAGE):
            try:
                told = client.delete(names[begin : begin + PAGE])
            except ApiError as error:
                raise InputError(f"{error.message}. {deleted:,} documents before these were deleted") from None
            deleted, log = deleted + told.documents, told.log
            bar.advance(told.documents)
    print(f"log {log}: {deleted:,} documents deleted")


def _list(client: Client, options: argparse.Namespace) -> None:
    after, left = options.after, options.limit
    while left > 0:
        page = client.documents(after, min(left, PAGE))
        for document in page.documents:
            _print(document)
        after, left = page.next, left - len(page.documents)
        if after is None:
            return
    say(f"{options.limit:,} documents. Others follow: give --limit, or --after {after}")


def _print(document: DocumentBody) -> None:
    print(json.dumps(document.model_dump(include=set(DocumentBody.model_fields)), ensure_ascii=False))
