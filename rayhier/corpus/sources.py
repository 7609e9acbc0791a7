"""Choose the reader of a corpus, and read sources that can only be iterated from the first document on.

Such sources are CSV files, a folder of text files, and data sets of ir_datasets and the Hugging Face hub. Data sets on
the hub have BEIR's layout, and are streamed without a second copy. rayhier runs no code of a data set.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from rayhier.corpus import lines, parquet, python_docs, row_checks
from rayhier.corpus.lines import json_lines, ms_marco
from rayhier.corpus.reader import RangeReader, Reader, Stream, StreamReader, checked
from rayhier.corpus.row_checks import Entry, Judgement, Reason, RowError, RowSchema
from rayhier.spec import InputError
from rayhier.spec.corpus import (
    Beir,
    ColumnNames,
    CorpusSpec,
    FieldType,
    FileCorpus,
    HuggingFace,
    IrDatasets,
    Limits,
    MsMarco,
    OwnFiles,
    PythonDocs,
    TextFiles,
)
from rayhier.storage import csv_rows, hub_data, listing
from rayhier.storage.listing import CorpusFiles, NamedFile
from rayhier.storage.source import IR_DATASETS

SPLITS = {"train": ("train",), "dev": ("dev", "validation"), "test": ("test",)}
"""Split -> the names that it has in data sets. The first existing name counts."""
HUB_SPLITS = SPLITS | {"dev": ("dev", "validation", "val")}
DOCUMENTS, QUERIES = "corpus", "queries"
"""Names of the hub's configurations (subsets) of documents and queries. Judgements have only one configuration."""

T = TypeVar("T")


def reader(spec: CorpusSpec) -> Reader:
    match spec:
        case PythonDocs():
            return python_docs.reader(spec)
        case IrDatasets() | HuggingFace() | TextFiles() | OwnFiles(type="csv"):
            return iterated(spec)
        case _:
            return ranged(spec)


def ranged(spec: FileCorpus) -> RangeReader:
    match spec:
        case Beir():
            return json_lines(listing.find(spec), RowSchema(spec.limits, ColumnNames(id="_id"), spec.fields))
        case OwnFiles(type="jsonl"):
            schema = RowSchema(spec.limits, spec.columns, spec.fields, spec.row_query_columns)
            return json_lines(listing.find(spec), schema)
        case OwnFiles():
            return parquet.reader(spec)
        case MsMarco():
            return ms_marco(listing.find(spec), spec.limits)


def iterated(spec: IrDatasets | HuggingFace | TextFiles | OwnFiles) -> StreamReader:
    match spec:
        case OwnFiles():
            schema = RowSchema(spec.limits, spec.columns, spec.fields, spec.row_query_columns)
            return CsvReader(listing.find(spec), schema)
        case IrDatasets():
            return ir(spec)
        case HuggingFace():
            return hugging_face(spec)
        case TextFiles():
            return TextReader(listing.texts(spec), spec.limits)


@dataclass(frozen=True)
class CsvReader:
    """Reader of CSV and TSV files. A row may have several lines, so one process reads a file from its start."""

    listing: CorpusFiles
    schema: RowSchema

    def documents(self) -> Stream[Entry]:
        rows = chain.from_iterable(csv_rows.rows(file.path) for file in self.listing.documents)
        return Stream("documents", checked(rows, lambda row: csv_document(row, self.schema)))

    def queries(self) -> Iterator[Stream[Entry]]:
        for file in self.listing.queries:
            rows = csv_rows.rows(file.path)
            yield Stream(file.name, checked(rows, lambda row: self.schema.query(whole(row))))

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:
        if split in self.listing.judgements:
            yield lines.whole(self.listing.judgements[split], lines.JUDGEMENTS)


def csv_document(row: dict[str, Any], schema: RowSchema) -> Entry:
    return schema.document(whole(row) | {name: typed(row.get(name), kind) for name, kind in schema.fields.items()})


def whole(row: dict[str, Any]) -> dict[str, Any]:
    """Check a row of a CSV file. RowError if a value or a column is missing, or a value is not UTF-8."""
    if None in row or None in row.values():
        raise RowError(Reason.WRONG_COLUMNS)
    if not all(map(row_checks.encodes, row.values())):
        raise RowError(Reason.INVALID_UTF8)
    return row


def typed(text: str | None, kind: FieldType) -> Any:
    """Convert the text of a field. A text that is no number, true or false stays text, which the schema rejects."""
    with suppress(ValueError):
        return text or None if kind == "string" else json.loads((text or "null").lower())
    return text


@dataclass(frozen=True)
class TextReader:
    """Reader of a folder of text files. The folder has neither queries nor judgements."""

    files: tuple[NamedFile, ...]
    limits: Limits

    def documents(self) -> Stream[Entry]:
        return Stream("documents", checked(self.files, self._document))

    def queries(self) -> Iterator[Stream[Entry]]:
        return iter(())

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:  # noqa: ARG002  as every reader's
        return iter(())

    def _document(self, file: NamedFile) -> Entry:
        if file.path.is_symlink():
            raise RowError(Reason.LINK)
        try:
            with file.path.open("rb") as opened:
                content = opened.read(row_checks.LONGEST_LINE + 1)
        except OSError as error:
            raise InputError(f"corpus.path: {file.path} cannot be read: {error.strerror}") from None
        title, text = titled(row_checks.decode(content), file.path)
        if not text:
            raise RowError(Reason.EMPTY_TEXT)
        return RowSchema(self.limits, ColumnNames(), {}).document({"id": file.name, "title": title, "text": text})


def titled(text: str, path: Path) -> tuple[str, str]:
    r"""Divide a file's text into title and rest. The title is a heading of Markdown, or else the file's name.

    >>> titled("# Pruning\n\nCut back.", Path("a.md"))
    ('Pruning', 'Cut back.')
    >>> titled("Cut back.", Path("apple_trees.txt"))
    ('apple trees', 'Cut back.')
    """
    first, _, rest = text.lstrip().partition("\n")
    if first.startswith("# ") and rest.strip():
        return first[2:].strip(), rest.strip()
    return path.stem.replace("_", " ").replace("-", " "), text.strip()


@dataclass(frozen=True)
class IrReader:
    """An opened data set of ir_datasets, and its splits, each with an id and an object of ir_datasets."""

    dataset: tuple[str, Any]
    splits: dict[str, tuple[str, Any]]
    schema: RowSchema

    def documents(self) -> Stream[Entry]:
        """Stream all documents. A document without a field `text` has the text of `default_text()`."""
        name, opened = self.dataset
        rows = (_row(entry.doc_id, entry) for entry in _guarded(name, opened.docs_iter()))
        return Stream(name, checked(rows, self.schema.document))

    def queries(self) -> Iterator[Stream[Entry]]:
        """Stream the queries, split by split. A data set that serves as two splits is read once."""
        for name, opened in dict(self.splits.values()).items():
            rows = (_row(entry.query_id, entry) for entry in _guarded(name, opened.queries_iter()))
            yield Stream(name, checked(rows, self.schema.query))

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:
        if split in self.splits:
            name, opened = self.splits[split]
            rows = _guarded(name, opened.qrels_iter())
            yield Stream(
                f"{name} qrels",
                checked(rows, lambda entry: row_checks.judgement(entry.query_id, entry.doc_id, str(entry.relevance))),
            )


def ir(spec: IrDatasets) -> IrReader:
    """Open a data set and its splits. InputError if ir_datasets is not installed or does not know an id."""
    split_ids = {split: name for split, name in spec.splits.model_dump().items() if name}
    dataset = _load("corpus.dataset", spec.dataset)
    if not dataset.has_docs():
        raise InputError(f"corpus.dataset: {spec.dataset} has no documents; allowed: an id with documents")
    splits = {split: (name, _load(f"corpus.splits.{split}", name)) for split, name in split_ids.items()}
    for split, (name, opened) in splits.items():
        if not opened.has_queries() or not opened.has_qrels():
            raise InputError(f"corpus.splits.{split}: {name} lacks queries or judgements; allowed: an id with both")
    schema = RowSchema(spec.limits, ColumnNames(), {})
    return IrReader((spec.dataset, dataset), splits or _splits(spec.dataset, dataset), schema)


def _splits(name: str, dataset: Any) -> dict[str, tuple[str, Any]]:
    """Find the judged splits by name. If none is named test, a data set with judgements is the test split."""
    by_split = {}
    for split, endings in SPLITS.items():
        for ending in endings:
            opened = _find(f"{name}/{ending}")
            if opened is not None and opened.has_queries() and opened.has_qrels():
                by_split[split] = (f"{name}/{ending}", opened)
                break
    if "test" not in by_split and dataset.has_queries() and dataset.has_qrels():
        by_split["test"] = (name, dataset)
    return by_split


def _load(key: str, name: str) -> Any:
    dataset = _find(name)
    if dataset is None:
        raise InputError(f"{key}: got {name!r}, unknown to ir_datasets; allowed: an id of `ir_datasets list`")
    return dataset


def _find(name: str) -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise InputError(f"corpus.type: ir_datasets is not installed: {IR_DATASETS}") from None
    try:
        return ir_datasets.load(name)
    except KeyError:
        return None


def _row(key: str, entry: Any) -> dict[str, Any]:
    text = getattr(entry, "text", None)
    if isinstance(text, str):
        return {"id": key, "title": getattr(entry, "title", None), "text": text}
    return {"id": key, "text": entry.default_text()}


def _guarded(name: str, rows: Iterable[T]) -> Iterator[T]:
    try:
        yield from rows
    except (OSError, RuntimeError, ValueError) as error:
        message = (str(error).splitlines() or [""])[0][:200]
        raise InputError(f"corpus.dataset: {name} cannot be read ({type(error).__name__}: {message})") from None


@dataclass(frozen=True)
class Repository:
    key: str
    path: str
    commit: str | None
    """Commit hash on the hub. None for a folder."""

    @classmethod
    def find(cls, key: str, path: str) -> "Repository":
        """Find the folder `path`, or else the data set of that name on the hub. InputError if neither exists.

        Even for a known commit, the hub is looked up first, so that an unreachable hub fails at once.
        """
        folder: Path | None = hub_data.folder(key, path)
        if folder is not None:
            return cls(key, str(folder), None)
        return cls(key, path.partition("@")[0], hub_data.ask(key, path))

    def load(self, config: str | None) -> Mapping[str, Any]:
        try:
            import datasets
        except ImportError:
            raise InputError(f"corpus.type: huggingface needs a missing package: {hub_data.EXTRA}") from None
        datasets.disable_progress_bars()
        datasets.logging.set_verbosity(logging.CRITICAL)
        try:
            loaded: Mapping[str, Any] = datasets.load_dataset(self.path, config, revision=self.commit, streaming=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise self._refusal(config, error) from None
        return loaded

    def rows(self, config: str | None, loaded: Any) -> Iterator[dict[str, Any]]:
        import datasets

        try:
            yield from loaded
        except (OSError, RuntimeError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise self._refusal(config, error) from None

    def _refusal(self, config: str | None, error: Exception) -> InputError:
        message = " ".join(str(error).split())[:300]
        return InputError(f"{self.key}: {self.path}, configuration {config or 'default'}, cannot be read: {message}")


@dataclass(frozen=True)
class HubReader:
    texts: Repository
    qrels: Repository
    schema: RowSchema

    def documents(self) -> Stream[Entry]:
        return Stream(DOCUMENTS, checked(self._rows(DOCUMENTS), self.schema.document))

    def queries(self) -> Iterator[Stream[Entry]]:
        yield Stream(QUERIES, checked(self._rows(QUERIES), self.schema.query))

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:
        loaded = self.qrels.load(None)
        for name in HUB_SPLITS[split]:
            if name in loaded:
                yield Stream(f"qrels {name}", checked(self.qrels.rows(None, loaded[name]), row_checks.judgement_row))
                return

    def _rows(self, config: str) -> Iterator[dict[str, Any]]:
        """Yield rows of every split of a configuration. InputError if the first row of a split has no id or text."""
        for split in self.texts.load(config).values():
            for number, row in enumerate(self.texts.rows(config, split)):
                for name in (self.schema.columns.id, self.schema.columns.text) if number == 0 else ():
                    if name not in row:
                        raise InputError(
                            f"corpus.path: {self.texts.path} has no column {name!r} in {config}; "
                            f"allowed: {', '.join(list(row)[:20])}"
                        )
                yield row


def hugging_face(spec: HuggingFace) -> HubReader:
    """Make the reader of the data sets that a spec names. InputError if one is missing or the hub is unreachable."""
    texts = Repository.find("corpus.path", spec.path)
    qrels = Repository.find("corpus.judgements", spec.qrels)
    return HubReader(texts, qrels, RowSchema(spec.limits, spec.row_columns, {}))
