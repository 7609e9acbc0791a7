"""Whether the jobs' later stages can work with what a corpus turned out to hold."""

from typing import Any

from rayhier.spec import InputError, JobSpec
from rayhier.spec.corpus import (
    Beir,
    Columns,
    CorpusSpec,
    HuggingFace,
    IrDatasets,
    Jsonl,
    MsMarco,
    Parquet,
    PythonDocs,
)


def check(spec: JobSpec, counts: dict[str, Any]) -> None:
    """InputError, naming the key, where the spec asks for what the corpus lacks. `counts` as in its record.json."""
    if counts["documents"]["accepted"] == 0:
        raise InputError(
            f"corpus.{_key(spec.corpus)}: no document accepted ({_rejected(counts['documents'])}); "
            f"allowed: {allowed(spec.corpus)}"
        )
    for name, filled in counts["fields"].items():
        if filled == 0:
            raise InputError(f"corpus.fields.{name}: no document has it; allowed: keys that documents have")
    spec.check_leaves(counts["rows"])
    if spec.train.objective == "supervised" and counts["splits"]["train"]["relevant"] == 0:
        raise InputError(
            f"train.objective: got 'supervised', but the corpus has no train judgement above 0 "
            f"({_rejected(counts['judgements']['train'])}); allowed: auto, documents"
        )
    if spec.corpus.names_judgements and counts["splits"][spec.evaluate.split]["relevant"] == 0:
        judged = [split for split in ("dev", "test") if counts["splits"][split]["relevant"]]
        raise InputError(
            f"evaluate.split: got {spec.evaluate.split!r}, but the corpus has no judgement above 0 there "
            f"({_rejected(counts['judgements'][spec.evaluate.split])}); "
            f"allowed here: {', '.join(judged) or 'none, it has judgements for neither dev nor test'}"
        )


def allowed(spec: CorpusSpec) -> str:
    """What a document of a source looks like."""
    match spec:
        case Beir():
            return 'UTF-8, one object a line, {"_id": "…", "title": "…", "text": "…"}'
        case Jsonl():
            names = spec.columns
            return f'UTF-8, one object a line, {{"{names.id}": "…", "{names.title}": "…", "{names.text}": "…"}}'
        case MsMarco():
            return "UTF-8, 2 columns split by tabs: id, text"
        case PythonDocs():
            return "a Python with sources"
        case _:
            names = getattr(spec, "columns", Columns())
            return f"rows with {names.id}, {names.title} and {names.text}"


def _key(spec: CorpusSpec) -> str:
    """The key that names the documents, and its value."""
    match spec:
        case Beir():
            return f"path: {spec.path}/corpus.jsonl"
        case MsMarco():
            return f"path: {spec.path}/collection.tsv"
        case Jsonl() | Parquet():
            return f"documents: {spec.documents}"
        case IrDatasets():
            return f"dataset: {spec.dataset}"
        case HuggingFace():
            return f"path: {spec.path}"
        case PythonDocs():
            return "type: python_docs"


def _rejected(counts: dict[str, Any]) -> str:
    reasons = [f"{reason} {number:,}" for reason, number in counts["rejected"].items()]
    return f"{counts['read']:,} read; rejected: {', '.join(reasons) or 'none'}"
