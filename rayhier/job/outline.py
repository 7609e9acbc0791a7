"""Print the plan of a job as text: steps, folders, sizes, hours, the total, and notes."""

import os
from collections.abc import Collection, Mapping
from typing import Any

from rayhier.job import rates
from rayhier.job.choice import choose
from rayhier.job.hours import Cost, stage_cost
from rayhier.job.memory import stage_memory
from rayhier.job.plan import ASSUMED_DOCUMENTS, Plan, Step, beside_rows, size_of
from rayhier.job.stages import STAGES
from rayhier.progress import counted
from rayhier.spec import JobSpec
from rayhier.spec.corpus import FileCorpus, passages_of

MOST_READ, MOST_ROWS = 16 << 20, 100_000
"""Largest numbers of bytes and of documents of a corpus whose ids a plan reads, to check judgements."""
NOT_EVALUATED = "evaluate: left out, because corpus.judgements names no file. rayhier eval can measure it later"


def show(plan: Plan, stages: Collection[str] = tuple(STAGES), *, fresh: bool = False) -> str:
    """Format a plan as text: a line per step with its amount of work, rate and hours, then total and notes.

    Rates are those that runs measured on this machine, or else `hours.RATES`. The state "to do" marks the steps of
    `stages` that are not published. With `fresh`, the state marks all steps of `stages`.
    """
    to_do = [step for step in plan.steps if step.stage in stages and (fresh or not step.is_published)]
    removed = plan.made_of(to_do) if fresh else []

    def state(step: Step) -> str:
        if step in to_do:
            return "to do"
        return "removed" if step in removed else "published" if step.is_published else "left out"

    known = plan.source.rows if passages_of(plan.spec.corpus) is None else None
    documents = plan.source.rows or ASSUMED_DOCUMENTS
    about = "" if known else "about " if plan.source.rows else "perhaps "
    about += counted(documents, plan.source.documents)
    lines = [
        f"{plan.spec.name}: {about}, {plan.spec.leaves(documents):,} leaves, workdir {plan.workdir}",
        f"encoder {plan.model.path} ({plan.model.dimension} dimensions, SHA-256 {plan.model.sha256[:12]}…)",
    ]
    rates_here = rates.load() if is_here(plan.spec) else {}
    choice = choose(plan, to_do)
    costs = {
        step.stage: stage_cost(step.stage, plan.spec, plan.work, rates_here, on_ray=choice.on_ray)
        for step in plan.steps
    }
    for step in plan.steps:
        place, room, cost = f"{step.kind}/{step.fingerprint}", f"about {size_of(step.bytes):>6}", costs[step.stage]
        hours = f"{_worked(cost):<48}  {_estimated(cost.seconds)}"
        lines.append(f"  {step.title:<16} {place:<26} {room}  {step.resources:<18}  {state(step):<9}  {hours}")
    size, seconds = sum(step.bytes for step in to_do), [costs[step.stage].seconds for step in to_do]
    lines.append(f"runs {choice}")
    unknown = f", plus steps on a GPU that were not measured: {seconds.count(None)}" if None in seconds else ""
    total = sum(filter(None, seconds))
    lines.append(f"to do: about {size_of(size)}, estimated {_time(total)}{unknown}")
    return "\n".join([*lines, *notes(plan)])


def told(counts: Mapping[str, Any], spec: JobSpec) -> str:
    if "rows" in counts and isinstance(counts.get("documents"), dict):  # the counts of a corpus
        return counted(counts["rows"], counts["documents"]["accepted"])
    text = ", ".join(f"{name} {count:,}" for name, count in counts.items() if type(count) is int and count)
    return text.replace("documents", "passages") if passages_of(spec.corpus) else text


def is_here(spec: JobSpec) -> bool:
    """Return True if the job runs on this machine, not on a cluster elsewhere."""
    elsewhere = os.environ.get("RAY_ADDRESS", "") not in ("", "auto", "local")
    return spec.cluster.address in ("auto", "local") and not (spec.cluster.address == "auto" and elsewhere)


def _worked(cost: Cost) -> str:
    if cost.rate is None:
        return f"{_short(cost.amount)} {cost.unit} on a {cost.device}"
    where = "measured here" if cost.is_measured else "from a table"
    return f"{_short(cost.amount)} {cost.unit}, {_short(cost.rate)}/s a {cost.device} {where}"


def _estimated(seconds: float | None) -> str:
    return "not measured" if seconds is None else f"estimated {_time(seconds):>7}"


def _short(count: float) -> str:
    thousands = 0
    while count >= 999.5 and thousands < len("kMG"):
        count, thousands = count / 1000, thousands + 1
    return f"{count:.3g}{' kMG'[thousands].strip()}"


def notes(plan: Plan) -> list[str]:
    """List notes about valid settings that may surprise: skipped stages, assumed sizes, extra rows, full scans."""
    lines = [] if plan.evaluates else [NOT_EVALUATED]
    if plan.source.rows is None:
        lines.append(f"corpus: its size is unknown until it is read. This plan assumes {ASSUMED_DOCUMENTS:,} documents")
    documents = plan.source.rows or ASSUMED_DOCUMENTS
    if plan.spec.leaves_per_document > 1:
        index, rows = next(step for step in plan.steps if step.stage == "index"), plan.spec.rows_per_document
        beside = beside_rows(plan.spec, plan.work)
        lines.append(
            f"index.leaves_per_document: {rows:g} rows per document in the leaf map: "
            f"{size_of(index.bytes)} instead of {size_of((index.bytes - beside) / rows + beside)} with one row"
        )
    leaves = plan.spec.leaves(documents)
    beam = plan.spec.search.leaves_visited(leaves, round(documents * plan.spec.rows_per_document))
    if beam >= leaves and plan.spec.search.recall is None:
        lines.append(f"warning: search.beam: {beam} of {leaves:,} leaves, so every search reads the whole index")
    return lines + _splits(plan) + _reading(plan) + _too_large(plan)


def _splits(plan: Plan) -> list[str]:
    test = plan.step("test").place.published() if plan.evaluates else None
    if not isinstance(plan.spec.corpus, FileCorpus) and test is None:
        return []
    from rayhier.corpus import questions, requirements, sample, sources, tables  # other corpora need none of these

    if isinstance(plan.spec.corpus, FileCorpus):
        small = plan.source.bytes <= MOST_READ and (plan.source.documents or 0) <= MOST_ROWS
        read = questions.read(sources.reader(plan.spec.corpus), (small and sample.ids(plan.spec.corpus)) or None)
        requirements.check_judgements(read.counts())
        rejected = [f"warning: {told}" for told in sample.rejected(plan.spec.corpus)]
        for split, rows in read.judgements.items():
            bad = sum(len(parsed.rejected) for _, parsed in rows)
            rejected += [f"warning: {bad:,} {split} judgements would be rejected"] if bad else []
        return [*tables.notes({"asked_before": read.asked_before()}), *rejected]
    return [] if test is None else tables.notes(test.record.counts)


def _reading(plan: Plan) -> list[str]:
    if plan.spec.scores is None:
        return []
    pairs = plan.spec.scores.pairs(plan.source.rows or ASSUMED_DOCUMENTS)
    return [f"scores: {pairs:,} pairs are scored before any search"]


def _too_large(plan: Plan) -> list[str]:
    if not is_here(plan.spec):
        return []
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needs = {step.stage: stage_memory(step.stage, plan.spec, plan.work) for step in plan.steps}
    return [
        f"warning: {stage}: one process needs about {size_of(needed)} of memory, but this machine has {size_of(has)}"
        for stage, needed in needs.items()
        if needed > has
    ]


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
