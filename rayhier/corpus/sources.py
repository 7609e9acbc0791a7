"""Choose the reader of the source that a spec names; read folders of text files, a document a file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rayhier.corpus import check, packages, parquet, python_docs
from rayhier.corpus.check import Entry, Judgement, Reason, RowError, RowSchema
from rayhier.corpus.lines import json_lines, ms_marco
from rayhier.corpus.rows import RangeReader, Reader, Stream, StreamReader, checked
from rayhier.spec import InputError
from rayhier.spec.corpus import (
    Beir,
    Columns,
    CorpusSpec,
    FileCorpus,
    HuggingFace,
    IrDatasets,
    Limits,
    MsMarco,
    OwnFiles,
    PythonDocs,
    TextFiles,
)
from rayhier.storage import listing
from rayhier.storage.listing import NamedFile


def reader(spec: CorpusSpec) -> Reader:
    match spec:
        case PythonDocs():
            return python_docs.reader(spec)
        case IrDatasets() | HuggingFace() | TextFiles():
            return iterated(spec)
        case _:
            return ranged(spec)


def ranged(spec: FileCorpus) -> RangeReader:
    match spec:
        case Beir():
            return json_lines(listing.find(spec), RowSchema(spec.limits, Columns(id="_id"), spec.fields))
        case OwnFiles(type="jsonl"):
            schema = RowSchema(spec.limits, spec.columns, spec.fields, spec.row_query_columns)
            return json_lines(listing.find(spec), schema)
        case OwnFiles():
            return parquet.reader(spec)
        case MsMarco():
            return ms_marco(listing.find(spec), spec.limits)


def iterated(spec: IrDatasets | HuggingFace | TextFiles) -> StreamReader:
    match spec:
        case IrDatasets():
            return packages.ir(spec)
        case HuggingFace():
            return packages.hugging_face(spec)
        case TextFiles():
            return TextReader(listing.texts(spec), spec.limits)


@dataclass(frozen=True)
class TextReader:
    """Reader of the files of a folder, which has neither queries nor judgements."""

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
                content = opened.read(check.LONGEST_LINE + 1)
        except OSError as error:
            raise InputError(f"corpus.path: {file.path} cannot be read: {error.strerror}") from None
        title, text = titled(check.decode(content), file.path)
        if not text:
            raise RowError(Reason.EMPTY_TEXT)
        return RowSchema(self.limits, Columns(), {}).document({"id": file.name, "title": title, "text": text})


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
