"""Describe the source of a corpus before the corpus is read: its files, their hashes, and its size."""

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rayhier.spec import InputError
from rayhier.spec.corpus import (
    Columns,
    CorpusSpec,
    FileCorpus,
    HuggingFace,
    IrDatasets,
    Limits,
    MsMarco,
    OwnFiles,
    Passages,
    PythonDocs,
    TextFiles,
)
from rayhier.storage import files, hub_data, listing
from rayhier.storage.listing import SPLITS, Listing

PARQUET = ".parquet"
BATCH_ROWS = 10_000
SAMPLE, SAMPLE_BYTES = 1_000, 4 << 20
"""Most documents of a sample, and most bytes read of a file of lines, or of a parquet file's texts."""
SAMPLE_ROWS, BUFFER_BYTES = 50, 1 << 20
PEEKED = 10
"""Number of a file's first rows whose keys are checked before a run begins."""
IR_DATASETS = "pip install 'rayhier[ir-datasets]'"


@dataclass(frozen=True)
class Source:
    """The source of a corpus, as far as it is known before the corpus stage reads it: identity and sizes."""

    identity: dict[str, str]
    """Content that training may read: name of a file of documents, or of judgements of train and dev -> SHA-256, and
    one SHA-256 of the queries that these judge; for sources without files, names and versions that stand for all."""
    test_identity: dict[str, str]
    """Content that only evaluation reads: the files of queries and of test judgements -> SHA-256; else as above."""
    documents: int | None
    """Upper bound of the number of documents; None where it is unknown until the source is read."""
    bytes: int
    """Size in bytes of all files that will be read; 0 where unknown."""
    judged: frozenset[str]
    """Splits that have judgements; all splits where they are unknown until the source is read."""
    rows: int | None
    """Number of rows of the corpus: its documents, or an estimate of its passages; None where unknown."""
    document_bytes: int = 0
    """Size in bytes of the documents' files; 0 where unknown."""
    queries: int = 0
    """Number of queries; 0 where unknown."""
    query_bytes: int = 0
    """Size in bytes of the queries' files; 0 where unknown."""
    judgements: dict[str, int] = field(default_factory=dict)
    """Split -> number of judgements (lines or parquet rows); empty where unknown."""


def describe(spec: CorpusSpec) -> Source:
    """Describe the source of a corpus that a spec names; InputError where a file is missing or empty."""
    match spec:
        case PythonDocs():
            return _unread({"python": platform.python_version()}, SPLITS)
        case IrDatasets():
            return _ir_datasets(spec)
        case HuggingFace():
            identity = _repository("corpus.path", spec.path)
            identity |= _repository("corpus.judgements", spec.qrels)
            return _unread(identity, SPLITS)
        case TextFiles():
            return _texts(spec)
        case _:
            return _files(spec)


def _texts(spec: TextFiles) -> Source:
    listed = [file for file in listing.texts(spec) if not file.path.is_symlink()]
    size = sum(file.path.stat().st_size for file in listed)
    content = {file.name: files.digest(file.path) for file in listed}
    whole = {"texts": hashlib.sha256(json.dumps(content).encode()).hexdigest()}
    rows = None if spec.windows else len(listed)
    return Source(whole, {}, len(listed), size, frozenset(), rows, document_bytes=size)


def _unread(identity: dict[str, str], judged: Iterable[str]) -> Source:
    """Describe a source that cannot be looked into before it is read: only its version is known."""
    return Source(identity, identity, None, 0, frozenset(judged), None)


def unreadable(path: Path, error: Exception) -> InputError:
    """Make the InputError about a parquet file that is damaged, cut short, or not parquet."""
    message = str(error).splitlines()[0][:200]
    return InputError(f"{path}: cannot be read as parquet ({message}); allowed: a whole parquet file")


def _files(spec: FileCorpus) -> Source:
    listed = listing.find(spec)
    content: dict[str, str] = {}
    sizes: dict[str, int] = {}
    lengths: dict[str, int] = {}
    for file in listed.all:
        lines = file.path.suffix != PARQUET if file in listed.judgements.values() else spec.in_lines
        content[file.name], size, lengths[file.name] = scan_lines(file.path) if lines else _scan_parquet(file.path)
        sizes[file.name] = size
    documents, text = (sum(numbers[file.name] for file in listed.documents) for numbers in (lengths, sizes))
    if documents == 0:
        raise InputError(
            f"corpus.{_key(spec, 'documents')}: {listed.documents[0].path} is empty; allowed: one document a line"
        )
    if listed.queries and not any(lengths[file.name] for file in listed.queries):
        raise InputError(
            f"corpus.{_key(spec, 'queries')}: {listed.queries[0].path} is empty; allowed: one query a line"
        )
    first = next(file.path for file in listed.documents if lengths[file.name])
    if spec.in_lines and not isinstance(spec, MsMarco):
        names, query_names = spec.row_columns, spec.row_query_columns
        usual = Columns()
        renamed = [name for name in ("title", "text") if getattr(names, name) != getattr(usual, name)]
        required = (names.id, *(getattr(names, name) for name in renamed))
        _check_keys(f"corpus.{_key(spec, 'documents')}", first, required, "columns")
        for query_file in listed.queries[:1]:
            key = f"corpus.{_key(spec, 'queries')}"
            _check_keys(key, query_file.path, (query_names.id, query_names.text), "query_columns")
    each = passages_a_document(spec, spec.windows, first) if spec.windows else 1
    test = {file.name for file in listed.queries} | {
        file.name for split, file in listed.judgements.items() if split == "test"
    }
    training = {name: digest for name, digest in content.items() if name not in test}
    if spec.names_judgements:
        training["queries of train and dev"] = _judged_queries(spec, listed)
    else:
        training = content
    return Source(
        training,
        {name: digest for name, digest in content.items() if name in test},
        documents,
        sum(sizes.values()),
        frozenset(listed.judgements),
        round(documents * each),
        document_bytes=text,
        queries=sum(lengths[file.name] for file in listed.queries),
        query_bytes=sum(sizes[file.name] for file in listed.queries),
        judgements={split: lengths[file.name] for split, file in listed.judgements.items()},
    )


def _check_keys(key: str, path: Path, names: Sequence[str], section: str) -> None:
    """InputError where a key of `names` is in none of a file's first rows; rows that are no objects are left out."""
    rows: list[dict[str, object]] = []
    with path.open("rb") as opened:
        for line in islice(opened, PEEKED):
            with suppress(ValueError, RecursionError):
                if isinstance(row := json.loads(line), dict):
                    rows.append(row)
    for name in names if rows else ():
        if not any(name in row for row in rows):
            raise InputError(
                f"{key}: {path}: key {name!r} is missing in the first {len(rows)} rows, which have "
                f"{', '.join(list(rows[0])[:10])}; allowed: rows with it, or corpus.{section} that name other keys"
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
    """Identity of a hub data set: SHA-256 of each file of a folder, or the commit on the hub."""
    folder = hub_data.folder(key, path)
    if folder is None:
        return {path.partition("@")[0]: hub_data.commit(key, path)}
    all_files = sorted(path for path in folder.rglob("*") if path.is_file())
    visible = [path for path in all_files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    return {f"{key}/{path.relative_to(folder).as_posix()}": files.digest(path) for path in visible}


def _scan_parquet(path: Path) -> tuple[str, int, int]:
    """SHA-256, bytes and rows of a parquet file; the number of rows is read from its footer."""
    try:
        rows = pq.read_metadata(path).num_rows
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None
    return files.digest(path), path.stat().st_size, rows


def scan_lines(path: Path) -> tuple[str, int, int]:
    """Return a file's SHA-256, its size in bytes, and its number of non-blank lines; reads it in chunks."""
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
    return hashed.hexdigest(), size, rows


def _judged_queries(spec: FileCorpus, listing: Listing) -> str:
    """Return the SHA-256 of the rows of all queries that train or dev judgements name, in the order of the files.

    Fingerprints cover this hash, not the whole file, so that adding other queries makes no trained artifact anew.

    A row without a readable id counts as named by none. A damaged parquet file ends early: reading it reports that.
    """
    named = {name for split in ("train", "dev") for name in _judged_by(spec, listing, split)}
    hashed = hashlib.sha256()
    for file in listing.queries if named else ():
        for name, row in _query_rows(spec, file.path):
            if name in named:
                hashed.update(len(row).to_bytes(8, "little") + row)
    return hashed.hexdigest()


def _judged_by(spec: FileCorpus, listing: Listing, split: str) -> Iterator[str]:
    """Yield the query id of each line of a split's judgements; a header counts as an id that no query has."""
    file = listing.judgements.get(split)
    if file is None:
        return
    if file.path.suffix == PARQUET:
        for row in _parquet_rows(file.path, ["query-id"]):
            yield str(row["query-id"])
        return
    blanks = None if isinstance(spec, MsMarco) else "\t"
    with file.path.open("rb") as opened:
        for line in opened:
            text = line.decode("utf-8-sig", "replace").rstrip("\r\n")
            yield next(iter(text.split(blanks, 1)), "")


def _query_rows(spec: FileCorpus, path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield id and content of every query of a file."""
    columns = spec.row_query_columns
    if path.suffix == PARQUET and not spec.in_lines:
        for row in _parquet_rows(path, [columns.id, columns.text]):
            yield str(row.get(columns.id)), json.dumps(row, sort_keys=True, default=str).encode()
        return
    with path.open("rb") as opened:
        for line in opened:
            if isinstance(spec, MsMarco):
                yield line.decode("utf-8-sig", "replace").split("\t", 1)[0], line.strip()
                continue
            with suppress(ValueError, RecursionError):
                row = json.loads(line.decode("utf-8-sig"))
                if isinstance(row, dict):
                    yield str(row.get(columns.id)), line.strip()


def _parquet_rows(path: Path, names: list[str]) -> Iterator[dict[str, object]]:
    """Yield rows of a parquet file, of some columns where the file has them, in bounded memory."""
    with suppress(pa.ArrowException, OSError):
        file = pq.ParquetFile(path, pre_buffer=False)
        columns = [name for name in names if name in file.schema_arrow.names]
        for batch in file.iter_batches(BATCH_ROWS, columns=columns):
            yield from (dict.fromkeys(names) | row for row in batch.to_pylist())


def passages_a_document(spec: FileCorpus, passages: Passages, path: Path) -> float:
    """Estimate the mean number of passages of a document, from the first thousand rows of a file, at most 4 MiB.

    A row without a readable text counts as no passage, because it will be rejected. Returns 1 where no row has a
    passage.
    """
    texts = list(islice(_sample_texts(spec, path), SAMPLE))
    passage_count = sum(_passages(text, spec.limits, passages) for text in texts if text is not None)
    return passage_count / len(texts) if passage_count else 1


def _passages(text: str, limits: Limits, passages: Passages) -> int:
    return len(passages.starts(len(text[: limits.text].split())))


def _sample_texts(spec: FileCorpus, path: Path) -> Iterator[str | None]:
    """The text of each row; "" where it is missing, None where the row cannot be read."""
    name = spec.row_columns.text
    match spec:
        case OwnFiles(type="parquet"):
            yield from _of_parquet(path, name)
        case MsMarco():
            yield from (_of_table(line) for line in _sample_lines(path))
        case _:
            yield from (_of_object(line, name) for line in _sample_lines(path))


def _sample_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as opened:
        lines = opened.read(SAMPLE_BYTES).split(b"\n")
        if opened.read(1):
            lines.pop()
    yield from filter(bytes.strip, lines)


def _of_object(line: bytes, name: str) -> str | None:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    return _text(row.get(name))


def _text(value: object) -> str | None:
    return "" if value is None else value if isinstance(value, str) else None


def _of_table(line: bytes) -> str | None:
    columns = line.decode("utf-8-sig", "replace").rstrip("\r").split("\t")
    return columns[1] if len(columns) == 2 else None


def _of_parquet(path: Path, name: str) -> Iterator[str | None]:
    """Texts of a parquet file, read in batches to save memory. Read errors end it: the corpus stage reports them."""
    size = 0
    with suppress(pa.ArrowException, OSError):
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)
        columns = [name] if name in file.schema_arrow.names else []
        for batch in file.iter_batches(SAMPLE_ROWS, columns=columns):
            yield from map(_text, batch.to_pydict().get(name, []))
            size += batch.nbytes
            if size >= SAMPLE_BYTES:
                break
