"""Read queries and judgements from a user's files, and format runs and tables. Errors name the line of a wrong row."""

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import numpy as np

from rayhier.corpus import parquet, row_checks
from rayhier.corpus.lines import lines, rows, values
from rayhier.corpus.own_files import judgements, whole
from rayhier.corpus.reader import Rows, checked, collect, distinct
from rayhier.corpus.row_checks import LONGEST_LINE, Entry, Reason, RowError, RowSchema
from rayhier.dataset.queries import Queries
from rayhier.spec import InputError
from rayhier.spec.corpus import ColumnNames, Limits
from rayhier.storage import csv_rows
from rayhier.storage.listing import PARQUET, judged_file
from rayhier.storage.parquet import opened

IDS = ("_id", "id", "query_id")
TEXT = "text"
BEIR = ColumnNames(id="_id")
RUN_COLUMNS, DIGITS = 6, 3
Run = dict[str, dict[str, float]]
"""A TREC run: query -> document -> score."""
T = TypeVar("T")


def read_queries(path: Path, columns: ColumnNames = BEIR) -> dict[str, str]:
    """Read queries: id -> text. InputError if a line is not JSON, CSV or ID TAB TEXT, or an id occurs twice."""
    ids, texts = (columns.id, *IDS), (columns.text, TEXT)
    keys = (" or ".join(dict.fromkeys(names)) for names in (ids, texts))
    _check(path)
    suffix = path.suffix.lower()
    if suffix == PARQUET:
        read = checked(parquet.read(path, opened(path).schema_arrow.names), lambda row: _query_of(row, ids, texts))
    elif suffix == ".csv" or (suffix == ".tsv" and _has_header(path, texts)):
        read = checked(csv_rows.rows(path), lambda row: _query_of(whole(row), ids, texts))
    else:
        read = checked(rows(lines(path, 0, path.stat().st_size)), partial(_query, ids=ids, texts=texts))
    allowed = f"JSON lines, .csv or .parquet with {', and '.join(keys)}, or lines of ID TAB TEXT"
    return {entry.key: entry.text for entry in _all(path, distinct(read, set()), allowed)}


def _has_header(path: Path, texts: Sequence[str]) -> bool:
    """Return True if the first line of a file names a column of texts."""
    with path.open("rb") as file:
        return bool({*texts} & {*values(file.readline(LONGEST_LINE))})


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Read judgements: query -> document -> grade. InputError for a line of another form, or a pair judged twice."""
    _check(path)
    grades: dict[str, dict[str, int]] = {}
    stream = judgements(judged_file(path.name, path), "--judgements")
    for judgement in _all(path, stream.rows, "BEIR's three columns, or TREC's four"):
        graded = grades.setdefault(judgement.query_id, {})
        if judgement.doc_id in graded:
            raise InputError(f"{path}: {judgement.query_id} and {judgement.doc_id} are judged twice; allowed: once")
        graded[judgement.doc_id] = judgement.grade
    return grades


def read_run(path: Path, judged: Queries) -> Run:
    """Read a TREC run: query -> document -> score. Ids that are not judged may be percent-encoded, as `trec` does.

    InputError if a line has another form, a query has a document twice, or the run has no judged query.
    """
    _check(path)
    documents = {name for grades in judged.grades.values() for name in grades}
    run: Run = {}
    raw = checked(rows(lines(path, 0, path.stat().st_size)), _ranked)
    for query, document, score in _all(path, raw, "lines of QUERY Q0 DOCUMENT RANK SCORE NAME"):
        scores = run.setdefault(query if query in judged.grades else unquote(query), {})
        name = document if document in documents else unquote(document)
        if name in scores:
            raise InputError(f"{path}: {query} has {document} twice; allowed: each document once")
        scores[name] = score
    if not run.keys() & judged.grades.keys():
        raise InputError(f"{path}: none of the {len(judged):,} judged queries is in it; allowed: a run of them")
    return run


def _ranked(line: bytes) -> tuple[str, str, float]:
    parts = row_checks.decode(line).split()
    if len(parts) != RUN_COLUMNS:
        raise RowError(Reason.WRONG_COLUMNS)
    try:
        score = float(parts[4])
    except ValueError:
        raise RowError(Reason.WRONG_TYPE) from None
    if math.isnan(score):
        raise RowError(Reason.WRONG_TYPE)
    return parts[0], parts[2], score


def judged(texts: dict[str, str], grades: dict[str, dict[str, int]]) -> Queries:
    """Select the queries that have judgements. InputError if no query has judgements, or no grade is above 0."""
    ids = [name for name in texts if name in grades]
    if not ids:
        raise InputError(
            f"--judgements: none of {len(grades):,} judged queries is one of the {len(texts):,} of --queries; allowed: "
            "judgements of the same queries, by their ids"
        )
    judged_grades = {name: grades[name] for name in ids}
    if not any(grade > 0 for judged_documents in judged_grades.values() for grade in judged_documents.values()):
        raise InputError("--judgements: no grade is above 0; allowed: judgements that name answers")
    return Queries(ids, np.zeros((len(ids), 0), np.float32), judged_grades, [texts[name] for name in ids])


def _query(line: bytes, ids: Sequence[str], texts: Sequence[str]) -> Entry:
    if line.lstrip().startswith(b"{"):
        return _query_of(row_checks.json_row(line), ids, texts)
    key, text = row_checks.split(line, 2)
    return row_checks.entry(key, "", text, Limits())


def _query_of(row: dict[str, Any], ids: Sequence[str], texts: Sequence[str]) -> Entry:
    name, text = (next((name for name in names if name in row), names[0]) for names in (ids, texts))
    return RowSchema(Limits(), ColumnNames(id=name, text=text), {}).query(row)


def _check(path: Path) -> None:
    try:
        path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if not path.is_file():
        raise InputError(f"{path}: no file; allowed: a file, not a folder or a pipe")


def _all(path: Path, rows: Rows[T], allowed: str) -> Iterable[T]:
    parsed = collect(rows)
    if parsed.rejected:
        line, wrong = parsed.rejected[0]
        raise InputError(
            f"{path}: line {line}: {wrong.reason}: {wrong.value!r} ({len(parsed.rejected):,} of {parsed.read:,} rows "
            f"cannot be read); allowed: {allowed}"
        )
    if not parsed.accepted:
        raise InputError(f"{path}: holds no rows; allowed: one row per line")
    return [row for _, row in parsed.accepted]


def trec(system: str, run: dict[str, dict[str, float]]) -> str:
    """Format a run (query -> document -> score) as a TREC run file. Blanks and % in an id are percent-encoded.

    Equal scores are lowered by the last bit of a float32, so that other programs keep the order of the run.
    """

    @cache
    def unspaced(name: str) -> str:
        return re.sub(r"[\s%]", lambda blank: quote(blank[0]), name)

    lines = []
    for query, scores in run.items():
        last = np.float32(np.inf)
        for rank, (document, score) in enumerate(sorted(scores.items(), key=lambda item: -item[1])):
            last = min(np.float32(score), np.nextafter(last, np.float32(-np.inf)))
            lines.append(f"{unspaced(query)} Q0 {unspaced(document)} {rank} {last:.9g} {system}")
    return "\n".join(lines) + "\n"


def cell(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.{DIGITS}f}"


def aligned(header: list[str], rows: list[list[str]]) -> list[str]:
    """Format a table as lines of aligned columns. Only the first column is aligned to the left."""
    widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, *rows)
    ]
