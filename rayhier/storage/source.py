"""Describes the source of a corpus before the corpus is read: its files, their hashes, and its size."""

import hashlib
import json
import math
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rayhier.spec import InputError
from rayhier.spec.corpus import (
    LIMITS,
    CorpusSpec,
    FileCorpus,
    HuggingFace,
    IrDatasets,
    MsMarco,
    OwnFiles,
    Passages,
    PythonDocs,
    TextFiles,
    passages_of,
)
from rayhier.storage import csv_rows, files, hub_data, listing
from rayhier.storage.listing import SPLITS, CorpusFiles, NamedFile

BATCH_ROWS = 10_000
QUERY_ID, *_ = JUDGED = ("query-id", "corpus-id", "score")
"""Columns of judgements in CSV and parquet files, and header of BEIR's files of judgements."""
SAMPLE, SAMPLE_BYTES = 1_000, 4 << 20
SAMPLE_ROWS = 50
PEEKED, SHOWN = 10, 60
"""Number of a file's first rows that are checked before a run, and most bytes of a wrong row in a message."""
PROSE = 8
"""Least words of a value that looks like a text. If no row has the text's key, such a value shows a wrong key."""
IR_DATASETS = "pip install 'rayhier[ir-datasets]'"


class FileStats(NamedTuple):
    sha256: str
    bytes: int
    rows: int
    words: int = 0
    """Words at the beginning of a text file that a document can hold. 0 for other files."""


@dataclass(frozen=True)
class Source:
    """The source of a corpus, as far as it is known before the corpus stage reads it."""

    identity: dict[str, str]
    """Content that training may read: name of a file -> SHA-256. All judged queries together have one SHA-256. A source
    without files has names and versions here."""
    test_identity: dict[str, str]
    """Content that only evaluation reads: name of a file -> SHA-256. A source without files has names and versions."""
    documents: int | None
    """Upper bound of the number of documents. None if it is unknown until the source is read."""
    bytes: int
    """Size in bytes of all files that will be read. 0 if unknown."""
    judged: frozenset[str]
    """Splits that have judgements. All splits if the source does not tell before it is read."""
    rows: int | None
    """Number of rows of the corpus: its documents, or an estimate of its passages. None if unknown."""
    document_bytes: int = 0
    queries: int = 0
    query_bytes: int = 0
    judgements: dict[str, int] = field(default_factory=dict)


def describe(spec: CorpusSpec) -> Source:
    match spec:
        case PythonDocs():
            return _unread({"python": platform.python_version()}, SPLITS)
        case IrDatasets():
            return _ir_datasets(spec)
        case HuggingFace():
            identity = _repository("corpus.path", spec.path)
            identity |= _repository("corpus.judgements", spec.qrels)
            return _unread(identity, SPLITS)
        case _:
            return _files(spec)


def _unread(identity: dict[str, str], judged: Iterable[str]) -> Source:
    return Source(identity, identity, None, 0, frozenset(judged), None)


def _files(spec: FileCorpus) -> Source:
    listed = listing.find(spec)
    scans = {file: _scan(file) for file in listed.all if file.format != "text" or not file.path.is_symlink()}
    documents, queries = (
        [scans[file] for file in part if file in scans] for part in (listed.documents, listed.queries)
    )
    for key, noun, part in (("documents", "document", listed.documents), ("queries", "query", listed.queries)):
        if part and not any(scans[file].rows for file in part if file in scans):
            allowed = "a line of column names, then rows" if part[0].format == "csv" else f"one {noun} a line"
            raise InputError(f"corpus.{_key(spec, key)}: {part[0].path} has no {noun}; allowed: {allowed}")
    first = next(file for file in listed.documents if file in scans and scans[file].rows)
    names, query_names = spec.row_columns, spec.row_query_columns
    key, query_key = (f"corpus.{_key(spec, name)}" for name in ("documents", "queries"))
    for file in listed.documents:
        _first_rows(spec, key, file)
    if rows := _first_rows(spec, key, first):
        own = {names.id, names.title, *spec.field_types}
        prose = {name for row in rows for name in row.keys() - own if len(str(row[name]).split()) >= PROSE}
        required = dict.fromkeys((*names.changed("title", "text"), *(["text"] if prose else [])))
        _check_keys(key, first, rows, [names.id, *(getattr(names, name) for name in required)], "columns")
        _check_keys(key, first, rows, list(spec.field_types) if first.format == "csv" else [], "fields")
    for file in listed.queries:
        _check_keys(
            query_key, file, _first_rows(spec, query_key, file), [query_names.id, query_names.text], "query_columns"
        )
    for split, file in listed.judgements.items():
        if all(name in ("", QUERY_ID) for name in islice(_judged_by(listed, split), PEEKED)):
            key = f"judgements.{split}" if isinstance(spec, OwnFiles | TextFiles) else "path"
            wanted = f", in columns {', '.join(JUDGED)}" if file.format != "lines" else ""
            raise InputError(
                f"corpus.{key}: {file.path} has no judgement; allowed: a file with some{wanted}, or no file"
            )
    test = {*listed.queries, *(file for split, file in listed.judgements.items() if split == "test")}
    read = {file for file in scans if not spec.names_judgements or file not in test}
    training = {file.name: scan.sha256 for file, scan in scans.items() if file in read and file.format != "text"}
    if spec.names_judgements:
        training["queries of train and dev"] = _judged_queries(spec, listed)
    count, passages = sum(scan.rows for scan in documents), passages_of(spec)
    if isinstance(spec, TextFiles):
        content = {file.name: scan.sha256 for file, scan in scans.items() if file.format == "text"}
        training["texts"] = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        indexed = sum(len(passages.starts(scan.words)) if passages else 1 for scan in documents)
    else:
        indexed = round(count * passages_a_document(spec, passages, first) if passages else count)
    return Source(
        training,
        {file.name: scan.sha256 for file, scan in scans.items() if file in test},
        count,
        sum(scan.bytes for scan in scans.values()),
        frozenset(listed.judgements),
        indexed,
        document_bytes=sum(scan.bytes for scan in documents),
        queries=sum(scan.rows for scan in queries),
        query_bytes=sum(scan.bytes for scan in queries),
        judgements={split: scans[file].rows for split, file in listed.judgements.items()},
    )


def _first_rows(spec: FileCorpus, key: str, file: NamedFile) -> list[dict[str, Any]]:
    """Read the first rows of JSON lines or CSV. InputError if none is a JSON object, or none of a CSV file is UTF-8."""
    path = file.path
    if file.format in ("text", "parquet") or isinstance(spec, MsMarco):
        return []
    if file.format == "csv":
        table = list(islice(csv_rows.rows(path), PEEKED))
        if table and all(any(csv_rows.NOT_TEXT.search(str(text)) for text in row.values()) for row in table):
            raise InputError(f"{key}: {path}: row 1 is not UTF-8; allowed: UTF-8, which iconv -t utf-8 writes")
        return table
    with path.open("rb") as opened:
        lines = [line for line in islice(opened, PEEKED) if line.strip()]
    rows = [row for line in lines if (row := _json_row(line)) is not None]
    if lines and not rows:
        shown = lines[0][:SHOWN].decode("utf-8", "backslashreplace").strip()
        array = ", the beginning of an array" if shown.startswith("[") else ""
        raise InputError(f"{key}: {path}: line 1: got {shown!r}{array}; allowed: UTF-8, one JSON object a line")
    return rows


def _check_keys(key: str, file: NamedFile, rows: Sequence[dict[str, Any]], names: Sequence[str], section: str) -> None:
    """Raise InputError if a key of `names` is in none of a file's first rows."""
    for name in names if rows else ():
        if not any(name in row for row in rows):
            raise InputError(
                f"{key}: {file.path}: key {name!r} is missing in the first {len(rows)} rows, which have "
                f"{', '.join(map(str, list(rows[0])[:10]))}; allowed: a key of the rows in corpus.{section}"
            )


def _key(spec: FileCorpus, key: str) -> str:
    return key if hasattr(spec, key) else "path"


def _ir_datasets(spec: IrDatasets) -> Source:
    try:
        version = metadata.version("ir_datasets")
    except metadata.PackageNotFoundError:
        raise InputError(f"corpus.type: ir_datasets is not installed: {IR_DATASETS}") from None
    splits = {split: name for split, name in spec.splits.model_dump().items() if name}
    identity = {"ir_datasets": version, "dataset": spec.dataset, **splits}
    return _unread(identity, splits or SPLITS)


def _repository(key: str, path: str) -> dict[str, str]:
    """Identify a hub data set by the SHA-256 of each file of a folder, or by the commit on the hub."""
    folder = hub_data.folder(key, path)
    if folder is None:
        return {path.partition("@")[0]: hub_data.commit(key, path)}
    all_files = sorted(path for path in folder.rglob("*") if path.is_file())
    visible = [path for path in all_files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    return {f"{key}/{path.relative_to(folder).as_posix()}": files.digest(path) for path in visible}


def _scan(file: NamedFile) -> FileStats:
    match file.format:
        case "lines":
            return scan_lines(file.path)
        case "csv":
            rows = sum(1 for _ in csv_rows.rows(file.path))
        case "parquet":
            from rayhier.storage import parquet  # imports pyarrow

            rows = parquet.opened(file.path).metadata.num_rows
        case "text":
            with file.path.open("rb") as opened:
                words = len(opened.read(LIMITS.text).split())
            return FileStats(files.digest(file.path), file.path.stat().st_size, 1, words)
    return FileStats(files.digest(file.path), file.path.stat().st_size, rows)


def scan_lines(path: Path) -> FileStats:
    """Hash and measure a file of lines, and count as rows the lines that are not blank."""
    hashed = hashlib.sha256()
    size = rows = 0
    blank = True
    with path.open("rb") as opened:
        while chunk := opened.read(files.CHUNK_BYTES):
            hashed.update(chunk)
            size += len(chunk)
            first, *rest = chunk.split(b"\n")
            blank = blank and not first.strip()
            for piece in rest:
                rows += not blank
                blank = not piece.strip()
    rows += not blank
    return FileStats(hashed.hexdigest(), size, rows)


def _judged_queries(spec: FileCorpus, listing: CorpusFiles) -> str:
    """Return the SHA-256 of the queries that train or dev judgements name. Other new queries need no training."""
    named = {name for split in ("train", "dev") for name in _judged_by(listing, split)}
    hashed = hashlib.sha256()
    for file in listing.queries if named else ():
        for name, row in _query_rows(spec, file):
            if name in named:
                hashed.update(len(row).to_bytes(8, "little") + row)
    return hashed.hexdigest()


def _judged_by(listing: CorpusFiles, split: str) -> Iterator[str]:
    """Yield the query id of each line of a split's judgements. A header counts as an id that no query has."""
    file = listing.judgements.get(split)
    if file is None:
        return
    if file.format != "lines":
        rows = csv_rows.rows(file.path) if file.format == "csv" else _parquet_rows(file.path, [QUERY_ID], BATCH_ROWS)
        yield from ("" if row.get(QUERY_ID) is None else str(row[QUERY_ID]) for row in rows)
        return
    with file.path.open("rb") as opened:
        for line in opened:
            text = line.decode("utf-8-sig", "replace").rstrip("\r\n")
            yield next(iter(text.split("\t" if "\t" in text else None, 1)), "")


def _query_rows(spec: FileCorpus, file: NamedFile) -> Iterator[tuple[str, bytes]]:
    columns, path = spec.row_query_columns, file.path
    if file.format != "lines":
        names = [columns.id, columns.text]
        for row in csv_rows.rows(path) if file.format == "csv" else _parquet_rows(path, names, BATCH_ROWS):
            yield str(row.get(columns.id)), json.dumps(row, sort_keys=True, default=str).encode()
        return
    with path.open("rb") as opened:
        for line in opened:
            if isinstance(spec, MsMarco):
                yield line.decode("utf-8-sig", "replace").split("\t", 1)[0], line.strip()
            elif (parsed := _json_row(line)) is not None:
                yield str(parsed.get(columns.id)), line.strip()


def _json_row(line: bytes) -> dict[str, Any] | None:
    with suppress(ValueError, RecursionError):
        row = json.loads(line.decode("utf-8-sig"))
        if isinstance(row, dict):
            return row
    return None


def _parquet_rows(path: Path, names: list[str], at_once: int, most: float = math.inf) -> Iterator[dict[str, Any]]:
    """Yield rows, `at_once` in memory, until about `most` bytes or a read error, which the corpus stage reports."""
    from rayhier.storage import parquet  # imports pyarrow

    with suppress(InputError):
        for table in parquet.tables(path, names, at_once):
            yield from (dict.fromkeys(names) | row for row in table.to_pylist())
            most -= table.nbytes
            if most <= 0:
                break


def passages_a_document(spec: FileCorpus, passages: Passages, file: NamedFile) -> float:
    """Estimate the mean passages of a document from a file's first rows. An unreadable row has none."""
    texts = list(islice(_sample_texts(spec, file), SAMPLE))
    words = (len(text[: spec.limits.text].split()) for text in texts if text is not None)
    count = sum(len(passages.starts(number)) for number in words)
    return count / len(texts) if count else 1


def _sample_texts(spec: FileCorpus, file: NamedFile) -> Iterator[str | None]:
    """Yield the text of each of the first rows: "" if it is missing, None if the row cannot be read."""
    name, path = spec.row_columns.text, file.path
    if file.format == "parquet":
        yield from (_text(row[name]) for row in _parquet_rows(path, [name], SAMPLE_ROWS, SAMPLE_BYTES))
        return
    if file.format == "csv":
        yield from (_text(row.get(name)) for row in csv_rows.rows(path))
        return
    with path.open("rb") as opened:
        lines = opened.read(SAMPLE_BYTES).split(b"\n")
        if opened.read(1):
            lines.pop()
    for line in filter(bytes.strip, lines):
        row = _json_row(line)
        yield None if row is None else _text(row.get(name))


def _text(value: object) -> str | None:
    return "" if value is None else value if isinstance(value, str) else None
