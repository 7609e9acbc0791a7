"""Whether the jobs' later stages can work with what a corpus turned out to hold."""

from typing import Any

from rayhier.spec import InputError, JobSpec


def check(spec: JobSpec, counts: dict[str, Any]) -> None:
    """InputError, naming the key, where the spec asks for what the corpus lacks. `counts` as in its record.json."""
    documents = counts["documents"]["accepted"]
    if documents == 0:
        raise InputError(_empty(spec, counts["documents"]))
    spec.check_leaves(documents)
    if spec.train.objective == "supervised" and counts["splits"]["train"]["relevant"] == 0:
        raise InputError(
            f"train.objective: got 'supervised', but the corpus has no train judgement above 0 "
            f"({_rejected(counts['judgements']['train'])}); allowed: auto, documents"
        )
    if counts["splits"][spec.evaluate.split]["relevant"] == 0:
        judged = [split for split in ("dev", "test") if counts["splits"][split]["relevant"]]
        raise InputError(
            f"evaluate.split: got {spec.evaluate.split!r}, but the corpus has no judgement above 0 there "
            f"({_rejected(counts['judgements'][spec.evaluate.split])}); "
            f"allowed here: {', '.join(judged) or 'none, it has judgements for neither dev nor test'}"
        )


def _empty(spec: JobSpec, documents: dict[str, Any]) -> str:
    if spec.corpus.type == "python_docs":
        return (
            f"corpus.type: python_docs: no document accepted ({_rejected(documents)}); allowed: a Python with sources"
        )
    return (
        f"corpus.path: {spec.corpus.path}/corpus.jsonl: no document accepted ({_rejected(documents)}); "
        'allowed: UTF-8, one object a line, {"_id": "…", "title": "…", "text": "…"}'
    )


def _rejected(counts: dict[str, Any]) -> str:
    reasons = [f"{reason} {number:,}" for reason, number in counts["rejected"].items()]
    return f"{counts['read']:,} read; rejected: {', '.join(reasons) or 'none'}"
