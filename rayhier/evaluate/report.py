"""report.json, report.md, curve.csv and TREC runs of an evaluation."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from rayhier.evaluate import plots
from rayhier.evaluate.evaluation import Evaluation, SeedResult
from rayhier.evaluate.significance import significance
from rayhier.evaluate.tables import cell, differences, label, reached, said, table
from rayhier.spec import JobSpec
from rayhier.storage import files
from rayhier.storage.paths import Location

PLOTS = "plots"
HOW_TO_READ = (
    "Visited are the distinct documents scored for a query, counted; values between measured beams are interpolated. "
    "A difference is the mean over queries of one system minus another; its 95% interval comes from "
    "10,000 paired resamples of the queries, and * marks a difference whose interval excludes 0."
)

REACHED_BY = (
    "What a system visits until it finds that share of what a scan of everything finds with the same encoder; in "
    "brackets its whole cost in documents' worth: rows scanned and routing. Shares of the corpus, means over queries."
)


def write(spec: JobSpec, evaluation: Evaluation, root: Location) -> dict[str, Any]:
    """Write every file of the evaluation below `root`; returns the report."""
    report = as_json(spec, evaluation)
    files.write_json(root / "report.json", report)
    files.replace(root / "curve.csv", _csv(evaluation).encode())
    for result in evaluation.seeds:
        for system, run in result.runs.items():
            files.replace(root / "runs" / f"{system}.seed{result.seed}.trec", _trec(system, run).encode())
    plots.write(spec, evaluation, root / PLOTS)
    files.replace(root / "report.md", as_markdown(spec, report).encode())
    return report


def as_json(spec: JobSpec, evaluation: Evaluation) -> dict[str, Any]:
    """The report as DESIGN fixes it: means over seeds, each seed beside them."""
    seeds = evaluation.seeds
    return {
        "name": spec.name,
        "router": spec.router.type,
        "documents": evaluation.documents,
        "queries": evaluation.queries,
        "systems": _systems(evaluation),
        "curves": {name: _curve(name, seeds) for name in seeds[0].curves},
        "balance": _mean([result.balance for result in seeds])
        | {"per_seed": [{"seed": result.seed, **result.balance} for result in seeds]},
        "significance": significance(spec, evaluation),
        "lists": evaluation.lists,
        "seconds": {name: _round(sum(result.seconds[name] for result in seeds)) for name in seeds[0].seconds},
        "seeds": [result.seed for result in seeds],
    }


def _systems(evaluation: Evaluation) -> dict[str, dict[str, float]]:
    systems = {}
    for name in evaluation.seeds[0].runs:
        rows = []
        for result in evaluation.seeds:
            if name in result.points:
                point = result.points[name]
                where = {"visited": point.visited_mean, "beam": float(point.beam), "leaves": point.leaves_mean}
                rows.append({**point.measures, **where})
            else:
                rows.append({**result.exact[name], "visited": 1.0})
        systems[name] = _mean(rows)
    return systems


def _curve(name: str, seeds: Sequence[SeedResult]) -> list[dict[str, Any]]:
    curve: list[dict[str, Any]] = []
    for points in zip(*(result.curves[name] for result in seeds), strict=True):
        flat = [point.flat() for point in points]
        beside = [
            {"seed": result.seed, **{key: _round(value) for key, value in row.items()}}
            for result, row in zip(seeds, flat, strict=True)
        ]
        curve.append({**_mean(flat), "beam": points[0].beam, "per_seed": beside})
    return curve


def as_markdown(spec: JobSpec, report: dict[str, Any]) -> str:
    """The report for people: one page."""
    router = report["router"]
    header = ["system", *spec.evaluate.measures, "visited"]
    rows = [
        [
            label(report, name),
            *(cell(values[measure]) for measure in spec.evaluate.measures),
            f"{values['visited']:.1%}",
        ]
        for name, values in report["systems"].items()
    ]
    compared = [differences(report, "exact_same_encoder", "exact", measure) for measure in spec.evaluate.measures]
    changes = [f"{row['measure']} {said(row)}" for found in compared for row in found]
    deepest = plots.deepest_recall(spec)
    prices = reached(report, deepest)
    lines = [
        f"# {report['name']}",
        "",
        _measured(spec, report),
        "",
        HOW_TO_READ,
        "",
        f"## {deepest} by documents visited",
        "",
        *_markdown(*table(report, spec.evaluate.visited, deepest)),
        "",
        *(["## What recall costs", "", REACHED_BY, "", *_markdown(*prices), ""] if prices[1] else []),
        f"## All measures at beam {report['systems'][router]['beam']:g}",
        "",
        *_markdown(header, rows),
        "",
        "Baselines with a curve stand at their first measured point that visits as much as the router.",
        *([f"Training changed exact search by {', '.join(changes)}."] if changes else []),
        "",
        *(f"![{title}]({PLOTS}/{name}.svg)" for name, title in plots.TITLES.items()),
        "",
    ]
    return "\n".join(lines)


def _measured(spec: JobSpec, report: dict[str, Any]) -> str:
    """What was measured."""
    seeds, balance = ", ".join(str(seed) for seed in report["seeds"]), report["balance"]
    return (
        f"{report['documents']:,} documents ({spec.corpus.type}), {report['queries']:,} {spec.evaluate.split} queries, "
        f"seeds {seeds}. Encoder {spec.encoder.model}, trained: {spec.encoder.train}. {report['router']}: "
        f"{balance['leaves']:.0f} leaves, {balance['empty']:g} empty, imbalance {balance['imbalance']:.2f}."
    )


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in header[1:])]
    return [f"| {' | '.join(cell.strip() for cell in row)} |" for row in (header, rule, *rows)]


def _csv(evaluation: Evaluation) -> str:
    text = io.StringIO()
    rows = list(_csv_rows(evaluation))
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _csv_rows(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    for result in evaluation.seeds:
        for name, curve in result.curves.items():
            for point in curve:
                yield {
                    "system": name,
                    "seed": result.seed,
                    **{key: _round(value) for key, value in point.flat().items()},
                }


def _trec(system: str, run: dict[str, dict[str, float]]) -> str:
    """A run file, scores to the last bit of a float32; blanks, which separate, are percent-encoded inside an id."""
    lines = []
    for query, scores in run.items():
        ranked = sorted(scores.items(), key=lambda item: -item[1])
        lines += [
            f"{_unspaced(query)} Q0 {_unspaced(document)} {rank} {score:.9g} {system}"
            for rank, (document, score) in enumerate(ranked)
        ]
    return "\n".join(lines) + "\n"


def _unspaced(name: str) -> str:
    return re.sub(r"[\s%]", lambda blank: quote(blank[0]), name)


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    return {key: _round(float(np.mean([row[key] for row in rows]))) for key in rows[0]}


def _round(value: float) -> float:
    return value if isinstance(value, int) else round(float(value), 6)
