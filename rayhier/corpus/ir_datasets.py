"""Reader of data sets of the package ir_datasets, which downloads and parses its own files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from rayhier.corpus import check
from rayhier.corpus.check import Entry, Judgement, RowSchema
from rayhier.corpus.rows import Stream, checked
from rayhier.spec import InputError
from rayhier.spec.corpus import Columns, IrDatasets
from rayhier.storage.source import IR_DATASETS

NAMES = {"train": ("train",), "dev": ("dev", "validation"), "test": ("test",)}

T = TypeVar("T")


@dataclass(frozen=True)
class IrReader:
    """An opened data set of ir_datasets, and its splits. Each is an id and the package's object."""

    dataset: tuple[str, Any]
    splits: dict[str, tuple[str, Any]]
    schema: RowSchema

    def documents(self) -> Stream[Entry]:
        """Stream all documents. Without a field `text`, a document has the text of `default_text()`."""
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
                checked(rows, lambda entry: check.judgement(entry.query_id, entry.doc_id, str(entry.relevance))),
            )


def reader(spec: IrDatasets) -> IrReader:
    """Open a data set and its splits. InputError if the package is not installed or it does not know an id."""
    split_ids = {split: name for split, name in spec.splits.model_dump().items() if name}
    dataset = _load("corpus.dataset", spec.dataset)
    if not dataset.has_docs():
        raise InputError(f"corpus.dataset: {spec.dataset} has no documents; allowed: an id with documents")
    splits = {split: (name, _load(f"corpus.splits.{split}", name)) for split, name in split_ids.items()}
    for split, (name, opened) in splits.items():
        if not opened.has_queries() or not opened.has_qrels():
            raise InputError(f"corpus.splits.{split}: {name} lacks queries or judgements; allowed: an id with both")
    schema = RowSchema(spec.limits, Columns(), {})
    return IrReader((spec.dataset, dataset), splits or _splits(spec.dataset, dataset), schema)


def _splits(name: str, dataset: Any) -> dict[str, tuple[str, Any]]:
    """Find the judged splits by name. If none is named test, the data set itself is test if it has judgements."""
    by_split = {}
    for split, endings in NAMES.items():
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
        raise InputError(
            f"{key}: got {name!r}, which ir_datasets does not know; allowed: an id that `ir_datasets list` prints"
        )
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
