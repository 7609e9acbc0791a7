"""Write the files of an evaluation: report.json, report.md, curve.csv, TREC runs, plots."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace

from rayhier.dataset.families import told_cut
from rayhier.evaluate.evaluation import Evaluation
from rayhier.evaluate.files import cell, trec
from rayhier.evaluate.plots import TITLES, write_plots
from rayhier.evaluate.report import ENCODERS, NAME, Report, rounded
from rayhier.evaluate.significance import FEWEST
from rayhier.evaluate.tables import encoders, leaf_groups, reached, served_path, table
from rayhier.evaluate.verdict import untrained_because, verdict
from rayhier.progress import counted
from rayhier.spec import JobSpec
from rayhier.spec.evaluate import VISITED
from rayhier.storage import files
from rayhier.storage.paths import Location

PLOTS = "plots"
HOW_TO_READ = (
    "Visited: the number of distinct documents scored for a query. Values between measured beams are interpolated. "
    "A difference is the mean over queries of one system minus another. Its 95% interval comes from 10,000 paired "
    "resamples of families of queries. Queries of a family share an answer or half of their words. * "
    f"marks a difference whose interval excludes 0. With fewer than {FEWEST} families there is no *, because intervals "
    "of so few are too narrow."
)
REACHED_BY = (
    "A column shows how many documents a system visits to find this share of what exact search with the same encoder "
    "finds. In brackets is the cost in dot products per query, for rows scanned and for routing. Both are shares of "
    "the corpus, means over queries. The time is the median of a single query on one core, for routing and scan. "
    "ScaNN is not timed, because it has to return all that it finds."
)
SERVED = (
    "The index searched as it is served. `+bm25` adds BM25 over all documents. Calls are documents that the "
    "cross-encoder read for a query. Milliseconds are those of one process for the whole query."
)
REPORT = "report.md"
SPREAD = (
    "Head: the most popular leaves, which half of the queries visit first. The tail has all other "
    "leaves that a query visits first. Measures are those of the index, over the queries of each group."
)
NEW_ANSWERS = (
    "Searches before and after training, with BM25 if searches use it, and exact by vectors. A query has new answers "
    "if none of its answers is an answer of a train query. The report leaves these rows out if all queries have new "
    "answers, or none has."
)


def write(spec: JobSpec, evaluation: Evaluation, root: Location) -> Report:
    """Write all files of an evaluation below `root`, and return the report."""
    report = Report.of(spec, evaluation)
    report.write(root / NAME)
    files.replace(root / "curve.csv", _csv(evaluation).encode())
    for result in evaluation.seeds:
        for system, run in result.runs.items():
            files.replace(root / "runs" / f"{system}.seed{result.seed}.trec", trec(system, run).encode())
    write_plots(spec, evaluation, report, root / PLOTS)
    files.replace(root / REPORT, as_markdown(spec, report).encode())
    return report


def as_markdown(spec: JobSpec, report: Report) -> str:
    measures, deepest = spec.evaluate.measures, spec.evaluate.deepest_recall
    rows = []
    for name, values in report.systems.items():
        rows.append([report.label(name), *(cell(values.measures[m]) for m in measures), f"{values.visited:.1%}"])
        if others := report.others.get(name):
            rows.append(["  without those", *(cell(others[m]) for m in measures), ""])
    prices, read, learned = reached(report, deepest), served_path(report, measures), encoders(report, measures)
    spread = leaf_groups(report, measures)
    lines = [
        f"# {report.name}",
        "",
        *(f"- {line}" for line in verdict(spec, report)),
        "",
        _measured(spec, report),
        "",
        HOW_TO_READ,
        "",
        f"## {deepest} by documents visited",
        "",
        *_markdown(*table(report, VISITED, deepest)),
        "",
        *(["## What recall costs", "", REACHED_BY, "", *_markdown(*prices), ""] if prices[1] else []),
        *(["## As it is served", "", SERVED, "", *_markdown(*read), ""] if read[1] else []),
        f"## All measures at {_searched(report)}",
        "",
        *_markdown(["system", *measures, "visited"], rows),
        "",
        "A baseline with several settings is shown at the first that visits as many documents as this index.",
        *(["", f"{report.told_before(spec)}."] if report.asked_before else []),
        "",
        *(["## Queries per leaf", "", SPREAD, "", *_markdown(*spread), ""] if spread[1] else []),
        *(["## Before and after training", "", NEW_ANSWERS, "", *_markdown(*learned), ""] if learned[1] else []),
        *(f"![{title}]({PLOTS}/{name}.svg)" for name, title in TITLES.items()),
        "",
    ]
    return "\n".join(lines)


def _measured(spec: JobSpec, report: Report) -> str:
    seeds, balance = ", ".join(str(seed) for seed in report.seeds), report.balance
    untrained = set(ENCODERS) <= report.systems.keys() and not report.encoders
    trained = f"nothing, {untrained_because(spec)}" if untrained else spec.encoder.train
    documents = counted(report.documents, report.whole)
    queries = f"{report.queries:,} {spec.evaluate.split} queries in {report.families:,} families"
    if report.filter is not None:
        documents += f" of {report.corpus:,} that match `{json.dumps(report.filter, ensure_ascii=False)}`"
        queries += f" ({report.left_out:,} queries without a matching answer are left out)"
    cut = "" if report.cut is None else f" {told_cut(**report.cut).capitalize()}."
    return (
        f"{documents} ({spec.corpus.type}), {queries}, "
        f"seeds {seeds}. Encoder {spec.encoder.names}, trained: {trained}. {report.router}: "
        f"{balance.leaves:.0f} leaves, {balance.empty:g} empty, imbalance {balance.imbalance:.2f}.{cut}"
    )


def _searched(report: Report) -> str:
    """Describe the settings with which the router's system was searched: its beam, or its level and shortlist."""
    beam = report.systems[report.router].beam
    if report.level is None:
        return f"beam {beam:g}"
    return f"level {report.level}, shortlist {beam:g}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in header[1:])]
    return [f"| {' | '.join(cell.strip() for cell in row)} |" for row in (header, rule, *rows)]


def _csv(evaluation: Evaluation) -> str:
    """Format the measured points without times, so that equal runs write equal files."""
    rows = []
    for result in evaluation.seeds:
        for name, curve in result.curves.items():
            for point in curve:
                values = replace(point, microseconds=None).flat()
                rows.append(
                    {"system": name, "seed": result.seed, **{key: rounded(value) for key, value in values.items()}}
                )
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
