"""Choose the reader of a corpus, and read data sets of ir_datasets and the Hugging Face hub.

Data sets on the hub have BEIR's layout, and are streamed without a second copy. rayhier runs no code of a data set.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rayhier.corpus import python_docs, row_checks
from rayhier.corpus.lines import MsMarcoReader
from rayhier.corpus.own_files import CsvReader, JsonReader, ParquetReader, TextReader
from rayhier.corpus.reader import RangeReader, Reader, Stream, StreamReader, checked
from rayhier.corpus.row_checks import Entry, Judgement, RowSchema
from rayhier.spec import InputError
from rayhier.spec.corpus import (
    Beir,
    ColumnNames,
    CorpusSpec,
    HuggingFace,
    IrDatasets,
    MsMarco,
    OwnFiles,
    PythonDocs,
    TextFiles,
)
from rayhier.storage import hub_data, listing
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


def ranged(spec: Beir | MsMarco | OwnFiles) -> RangeReader:
    match spec:
        case MsMarco():
            return MsMarcoReader.of(listing.find(spec), spec.limits)
        case OwnFiles(type="parquet"):
            return ParquetReader.of(spec)
        case _:
            return JsonReader.of(spec)


def iterated(spec: IrDatasets | HuggingFace | TextFiles | OwnFiles) -> StreamReader:
    match spec:
        case IrDatasets():
            return ir(spec)
        case HuggingFace():
            return hugging_face(spec)
        case TextFiles():
            return TextReader.of(spec)
        case OwnFiles():
            return CsvReader.of(spec)


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
    """Find the judged splits by name. If no split is named test, a judged `dataset` is the test split."""
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
