"""Choose the reader of the source that a spec names."""

from rayhier.corpus import beir, huggingface, ir_datasets, jsonl, msmarco, parquet
from rayhier.corpus.rows import RangeReader, StreamReader
from rayhier.spec.corpus import Beir, FileCorpus, HuggingFace, IrDatasets, Jsonl, MsMarco, Parquet


def ranged(spec: FileCorpus) -> RangeReader:
    """Make the reader of a source of files, which is read range by range; InputError where a file is missing."""
    match spec:
        case Beir():
            return beir.reader(spec)
        case Jsonl():
            return jsonl.reader(spec)
        case Parquet():
            return parquet.reader(spec)
        case MsMarco():
            return msmarco.reader(spec)


def iterated(spec: IrDatasets | HuggingFace) -> StreamReader:
    """Make the reader of a source that can only be iterated; InputError where it cannot be opened."""
    match spec:
        case IrDatasets():
            return ir_datasets.reader(spec)
        case HuggingFace():
            return huggingface.reader(spec)
