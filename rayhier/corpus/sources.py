"""Choose the reader of the source that a spec names."""

from rayhier.corpus import beir, huggingface, ir_datasets, jsonl, msmarco, parquet, python_docs, text_files
from rayhier.corpus.rows import RangeReader, Reader, StreamReader
from rayhier.spec.corpus import (
    Beir,
    CorpusSpec,
    FileCorpus,
    HuggingFace,
    IrDatasets,
    MsMarco,
    OwnFiles,
    PythonDocs,
    TextFiles,
)


def reader(spec: CorpusSpec) -> Reader:
    """Make the reader of a source's queries and judgements; InputError where the source cannot be opened."""
    match spec:
        case PythonDocs():
            return python_docs.reader(spec)
        case IrDatasets() | HuggingFace() | TextFiles():
            return iterated(spec)
        case _:
            return ranged(spec)


def ranged(spec: FileCorpus) -> RangeReader:
    """Make the reader of a source of files, which is read range by range; InputError where a file is missing."""
    match spec:
        case Beir():
            return beir.reader(spec)
        case OwnFiles(type="jsonl"):
            return jsonl.reader(spec)
        case OwnFiles():
            return parquet.reader(spec)
        case MsMarco():
            return msmarco.reader(spec)


def iterated(spec: IrDatasets | HuggingFace | TextFiles) -> StreamReader:
    """Make the reader of a source that can only be iterated; InputError where it cannot be opened."""
    match spec:
        case IrDatasets():
            return ir_datasets.reader(spec)
        case HuggingFace():
            return huggingface.reader(spec)
        case TextFiles():
            return text_files.reader(spec)
