"""Build the corpus: workers read documents range by range, and this process reads queries and judgements."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from rayhier.corpus import ids, lines, parts, python_docs, questions, requirements, sources, tables
from rayhier.corpus.document_file import REASONS_SHOWN
from rayhier.corpus.parts import CheckedParts, PartFile
from rayhier.corpus.passages import DocumentLayout
from rayhier.corpus.questions import Questions
from rayhier.corpus.reader import Range, RangeReader, Reader
from rayhier.executor import Executor, Pool, Row
from rayhier.progress import Bar, here, log, say
from rayhier.spec import JobSpec
from rayhier.spec.cluster import Workers
from rayhier.spec.corpus import Beir, CorpusSpec, HuggingFace, IrDatasets, MsMarco, OwnFiles, PythonDocs, TextFiles
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.files import File
from rayhier.storage.paths import Location, locate

PART_DOCUMENTS = 250
PART_ROWS = 10_000
"""Number of rows in a part of a source that can only be iterated (ir_datasets, huggingface, CSV files)."""
PART_FILES = 250
"""Number of files in a part of a corpus of type text. Small parts give every process files to encode."""


class MakePart:
    def __init__(self, reader: RangeReader, root: str, layout: DocumentLayout) -> None:
        self.reader, self.root, self.layout = reader, locate(root), layout

    def __call__(self, item: Row) -> Iterator[Row]:
        piece = Range(**{**item, **{name: int(item[name]) for name in ("part", "begin", "end")}})
        yield {"documents": parts.make(piece, self.reader.documents(piece), self.root, self.layout)}


@dataclass(frozen=True)
class Contents:
    """A source, read and checked: documents in part files, queries and judgements in memory."""

    documents: Sequence[File]
    questions: Questions
    rejected: Sequence[pa.Table]
    count: dict[str, Any]


def build(executor: Executor, spec: JobSpec, attempt: Attempt) -> Output:
    """Read, check and write the corpus of a spec. InputError if the corpus lacks anything that the spec needs."""
    layout = DocumentLayout.of(spec.corpus)
    match spec.corpus:
        case PythonDocs():
            contents = _python_docs(spec.corpus, attempt.root)
        case IrDatasets() | HuggingFace() | TextFiles() | OwnFiles(type="csv"):
            contents = _iterated(spec.corpus, attempt.root)
        case _:
            contents = _ranged(executor, spec.corpus, spec.cluster.corpus, attempt.root)
    stored = tables.stored(attempt.root, contents.documents, layout.fields, spec.corpus.language)
    # Check test queries and judgements here too, before any document is encoded.
    counts = {"documents": contents.count, **contents.questions.counts(), **stored}
    requirements.check(spec, counts)
    requirements.check_split(spec, counts)
    for line in tables.lines(counts):
        log(line)
    for note in tables.notes(counts):
        say(f"  {note}")
    training = contents.questions.of_training()
    rejected = [*contents.rejected, *training.rejected()]
    if count := sum(table.num_rows for table in rejected):
        say(f"  {count:,} rows are rejected, with their reasons: {here(attempt.root / tables.REJECTED)}")
        shown = 0 if isinstance(spec.corpus, PythonDocs) else REASONS_SHOWN  # many docstrings are no question
        for row in pa.concat_tables(rejected).slice(0, shown).to_pylist():
            say("    {source}, row {row}: {reason}: {value}".format_map(row))
    queries = tables.queries_table(training.accepted_queries)
    written = tables.write(attempt.root, queries, training.splits, rejected)
    counts = {"documents": contents.count, **training.counts(), **stored}
    return Output(counts, (*contents.documents, *written))


def _ranged(executor: Executor, spec: Beir | MsMarco | OwnFiles, workers: Workers, root: Location) -> Contents:
    reader, layout = sources.ranged(spec), DocumentLayout.of(spec)
    pieces = reader.ranges()
    checked = parts.settle(root, _parts(executor, reader, pieces, layout, workers, root), layout)
    for name in checked.misshapen():
        path = next(piece.path for piece in pieces if piece.source == name)
        raise lines.refusal(Path(path), requirements.allowed(spec))
    return Contents(checked.documents, _questions(spec, reader, checked), checked.rejected, checked.counts())


def _parts(
    executor: Executor,
    reader: RangeReader,
    pieces: Sequence[Range],
    layout: DocumentLayout,
    workers: Workers,
    root: Location,
) -> list[PartFile]:
    missing = [piece for piece in pieces if parts.finished(piece, root) is None]
    arguments = {"reader": reader, "root": str(root), "layout": layout}
    documents = 0
    with Bar("corpus", len(pieces), "parts") as bar:
        bar.advance(len(pieces) - len(missing))
        for row in executor.stream([asdict(piece) for piece in missing], Pool(MakePart, arguments, workers)):
            documents += row["documents"]
            bar.advance(note=f"{documents:,} documents")
    return [_finished(piece, root) for piece in pieces]


def _finished(piece: Range, root: Location) -> PartFile:
    part = parts.finished(piece, root)
    if part is None:
        raise RuntimeError(f"part {piece.part} of {piece.source} did not reach {root}")
    return part


def _iterated(spec: IrDatasets | HuggingFace | TextFiles | OwnFiles, root: Location) -> Contents:
    """Read a source that can only be iterated, in this process. Skips the rows of finished parts."""
    reader, layout = sources.iterated(spec), DocumentLayout.of(spec)
    documents, most = reader.documents(), PART_FILES if isinstance(spec, TextFiles) else PART_ROWS
    part_files: list[PartFile] = []
    with Bar("corpus", 1, "source") as bar:
        while rows := list(islice(documents.rows, most)):
            begin = len(part_files) * most
            piece = Range(len(part_files), documents.source, "", begin, begin + len(rows))
            if parts.finished(piece, root) is None:
                parts.make(piece, iter(rows), root, layout)
            part_files.append(_finished(piece, root))
            bar.advance(0, f"{begin + len(rows):,} documents")
        bar.advance()
    checked = parts.settle(root, part_files, layout)
    return Contents(checked.documents, _questions(spec, reader, checked), checked.rejected, checked.counts())


def _questions(spec: CorpusSpec, reader: Reader, checked: CheckedParts) -> Questions:
    return questions.read(reader, ids.IdSet(checked.digests), judged=spec.names_judgements)


def _python_docs(spec: PythonDocs, root: Location) -> Contents:
    reader = python_docs.reader(spec)
    docstrings = reader.docstrings
    cuts = range(0, len(docstrings.documents), PART_DOCUMENTS)
    written = [
        parts.write_documents(
            root, number, iter(docstrings.documents[begin : begin + PART_DOCUMENTS]), DocumentLayout.of(spec)
        )
        for number, begin in enumerate(cuts)
    ]
    reasons = (rejection.reason for *_, rejection in docstrings.rejected)
    cut = sum(document.cut for document in docstrings.documents)
    return Contents(
        [file for file in written if file],
        questions.read(reader, {document.key for document in docstrings.documents}),
        [tables.rejected(docstrings.rejected)],
        tables.count(docstrings.read, docstrings.documents, reasons) | {"cut": cut},
    )
