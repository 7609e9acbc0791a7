"""From a spec's source to what reads it: the one place where the types of source are told apart."""

from rayhier.corpus import beir, huggingface, ir_datasets, jsonl, msmarco, parquet
from rayhier.corpus.rows import Iterated, Ranged
from rayhier.spec.corpus import Beir, HuggingFace, IrDatasets, Jsonl, Listed, MsMarco, Parquet


def ranged(spec: Listed) -> Ranged:
    """The reader of a set of files; InputError where one is missing."""
    match spec:
        case Beir():
            return beir.reader(spec)
        case Jsonl():
            return jsonl.reader(spec)
        case Parquet():
            return parquet.reader(spec)
        case MsMarco():
            return msmarco.reader(spec)


def iterated(spec: IrDatasets | HuggingFace) -> Iterated:
    """The reader of what only iterates; InputError where it cannot be opened."""
    match spec:
        case IrDatasets():
            return ir_datasets.reader(spec)
        case HuggingFace():
            return huggingface.reader(spec)
