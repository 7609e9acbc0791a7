"""report.json, report.md, curve.csv and TREC runs of an evaluation."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from rayhier.evaluate import plots
from rayhier.evaluate.curve import Point, read
from rayhier.evaluate.evaluation import Evaluation, SeedResult
from rayhier.spec import JobSpec
from rayhier.storage import files
from rayhier.storage.paths import Location

PLOTS = "plots"
DIGITS = 4


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
                rows.append({**point.measures, "visited": point.visited_mean, "beam": float(point.beam)})
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


def table(report: dict[str, Any], visited: Sequence[float], measure: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows: a measure of each system at fractions of the documents visited, interpolated."""
    header = [measure, *(f"{share:.0%} visited" for share in visited)]
    rows = []
    for name, curve in report["curves"].items():
        points = [point_of(row, measure) for row in curve]
        rows.append([label(report, name), *(_cell(read(points, share, measure)) for share in visited)])
    for name, values in report["systems"].items():
        if name not in report["curves"]:
            cells = [_cell(values[measure]) if share == values["visited"] else "" for share in visited]
            rows.append([label(report, name), *cells])
    return header, rows


def point_of(row: dict[str, Any], measure: str) -> Point:
    """A row of report.json's curves as a point."""
    return Point(
        row["beam"],
        row["visited_mean"],
        row["visited_p95"],
        row["cost_mean"],
        row["leaves_mean"],
        {measure: row[measure]},
    )


def label(report: dict[str, Any], name: str) -> str:
    """A system's name and how many leaves or lists it has."""
    if name == report["router"]:
        return f"{name} ({report['balance']['leaves']:.0f} leaves)"
    return f"{name} ({report['lists'][name]} lists)" if name in report["lists"] else name


def as_markdown(spec: JobSpec, report: dict[str, Any]) -> str:
    """The report for people."""
    shown = ", ".join(str(seed) for seed in report["seeds"])
    lines = [
        f"# {report['name']}",
        "",
        f"{report['documents']:,} documents, {report['queries']:,} {spec.evaluate.split} queries, seeds {shown}.",
        "Documents visited are counted, not estimated; values between measured beams are interpolated.",
        "",
    ]
    for measure in spec.evaluate.measures:
        lines += [f"## {measure}", "", *_markdown(*table(report, spec.evaluate.visited, measure)), ""]
    header = ["system", *spec.evaluate.measures, "visited"]
    rows = [
        [
            label(report, name),
            *(_cell(values[measure]) for measure in spec.evaluate.measures),
            f"{values['visited']:.1%}",
        ]
        for name, values in report["systems"].items()
    ]
    balance = report["balance"]
    lines += [f"## At beam {report['systems'][report['router']]['beam']:g}", "", *_markdown(header, rows), ""]
    lines += [
        "IVF controls stand at their first measured point that visits as much as the router.",
        "",
        f"Balance: {balance['leaves']:.0f} leaves, {balance['empty']:g} empty, imbalance {balance['imbalance']:.2f}.",
        "",
        *(f"![{title}]({PLOTS}/{name}.svg)" for name, title in plots.TITLES.items()),
        "",
    ]
    return "\n".join(lines)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in header[1:])]
    return [f"| {' | '.join(row)} |" for row in (header, rule, *rows)]


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


def _cell(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.{DIGITS - 1}f}"
