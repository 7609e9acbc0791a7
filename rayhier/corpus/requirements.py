"""Check that a corpus has everything that the later stages of a job need."""

from typing import Any

from rayhier.corpus.row_checks import Reason
from rayhier.dataset.families import told_before
from rayhier.spec import InputError, JobSpec
from rayhier.spec.corpus import Beir, CorpusSpec, IrDatasets, MsMarco, OwnFiles, PythonDocs, TextFiles


def check(spec: JobSpec, counts: dict[str, Any]) -> None:
    """Check that the corpus has what the spec needs. InputError with the spec's key if something is missing."""
    if counts["documents"]["accepted"] == 0:
        key, value = _named(spec.corpus)
        raise InputError(
            f"corpus.{key}: {value}: no document accepted ({_rejected(counts['documents'])}); "
            f"allowed: {allowed(spec.corpus)}"
        )
    queries = counts["queries"]
    if queries["read"] and not queries["accepted"]:
        names, missing = spec.corpus.row_query_columns, queries["rejected"].get(Reason.MISSING_TEXT, 0)
        lacking = f"key {names.text!r} is missing in {missing:,} of {queries['read']:,} queries"
        problem = lacking if missing else f"no query accepted ({_rejected(queries)})"
        raise InputError(
            f"corpus.queries: {problem}; allowed: rows with {names.id} and {names.text}, or other query_columns"
        )
    check_judgements(counts)
    for name, filled in counts["fields"].items():
        if filled == 0:
            raise InputError(f"corpus.fields.{name}: no document has it; allowed: fields that documents have")
    spec.check_leaves(counts["rows"])
    objective = spec.train.objective
    paired = spec.train.generation or counts["splits"]["train"]["relevant"]
    if objective in ("supervised", "joint") and not paired:
        raise InputError(
            f"train.objective: got {objective!r}, but the corpus has no train judgement above 0 "
            f"({_rejected(counts['judgements']['train'])}); allowed: auto, documents"
        )


def check_judgements(counts: dict[str, Any]) -> None:
    """Check that each split with judgements has an accepted judgement. InputError if ids belong to another corpus."""
    for split, rows in counts["judgements"].items():
        if rows["read"] and not rows["accepted"]:
            raise InputError(
                f"corpus: no {split} judgement accepted ({_rejected(rows)}); allowed: judgements that name documents "
                "and queries by the ids that these have"
            )


def check_split(spec: JobSpec, counts: dict[str, Any], training: dict[str, Any] | None = None) -> None:
    """Check the evaluated split. InputError if no judgement is above 0, or earlier splits have all its queries."""
    if spec.corpus.names_judgements and counts["splits"][spec.evaluate.split]["relevant"] == 0:
        splits = counts["splits"] | (training or {"splits": {}})["splits"]
        judged = [split for split in ("dev", "test") if split in splits and splits[split]["relevant"]]
        raise InputError(
            f"evaluate.split: got {spec.evaluate.split!r}, but the corpus has no judgement above 0 in that split "
            f"({_rejected(counts['judgements'][spec.evaluate.split])}); "
            f"allowed here: {', '.join(judged) or 'none, neither dev nor test has a judgement above 0'}"
        )
    row = counts.get("asked_before", {}).get(spec.evaluate.split)  # 0.2.0 did not count it
    if row and row["queries"] and row["by_id"] + row["by_text"] == row["queries"]:
        told = told_before(spec.evaluate.split, **row)
        raise InputError(f"evaluate.split: {told}; allowed: a split with queries that training does not read")


def allowed(spec: CorpusSpec) -> str:
    match spec:
        case Beir():
            return 'UTF-8, one JSON object per line, {"_id": "…", "title": "…", "text": "…"}'
        case OwnFiles(type="jsonl"):
            names = spec.columns
            return f'UTF-8, one JSON object per line, {{"{names.id}": "…", "{names.title}": "…", "{names.text}": "…"}}'
        case MsMarco():
            return "UTF-8, 2 columns split by tabs: id, text"
        case TextFiles():
            return "files of UTF-8 text that is not blank"
        case PythonDocs():
            return "a Python whose standard library has its .py files"
        case _:
            names = spec.row_columns
            return f"rows with {names.id}, {names.title} and {names.text}"


def _named(spec: CorpusSpec) -> tuple[str, str]:
    match spec:
        case OwnFiles():
            return "documents", spec.documents
        case IrDatasets():
            return "dataset", spec.dataset
        case PythonDocs():
            return "type", "python_docs"
        case _:
            return "path", spec.path + {"beir": "/corpus.jsonl", "msmarco": "/collection.tsv"}.get(spec.type, "")


def _rejected(counts: dict[str, Any]) -> str:
    reasons = [f"{reason} {number:,}" for reason, number in counts["rejected"].items()]
    return f"{counts['read']:,} read; rejected: {', '.join(reasons) or 'none'}"
