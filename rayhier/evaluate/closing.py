"""Closing lines of a run on the terminal: tables, five questions with their answers, paths of plots and report."""

from rayhier.evaluate import tables
from rayhier.evaluate.output import PLOTS
from rayhier.evaluate.report import ENCODERS, NAME, Report
from rayhier.progress import here
from rayhier.search.searcher import Searcher
from rayhier.spec import JobSpec
from rayhier.storage import columns, current
from rayhier.storage.paths import Location

QUESTIONS = 5
ANSWERS = 3
WIDTH = 100
COST = "share of the corpus visited (cost: dot products per query, rows scanned and routing, as a share of the corpus)"


def closing(spec: JobSpec, workdir: Location, root: Location) -> str:
    """The closing lines for an evaluation published below `root`."""
    report, measure = Report.read(root / NAME), spec.evaluate.deepest_recall
    lines = tables.aligned(*tables.table(report, spec.evaluate.visited, measure))
    header, rows = tables.reached(report, measure)
    if rows:
        lines += ["", *tables.aligned(header, rows), "", COST]
    header, rows = tables.served_path(report, spec.evaluate.measures)
    if rows:
        lines += ["", *tables.aligned(header, rows)]
    plots = [here(path) for path in sorted((root / PLOTS).glob("*.png"), key=str)]
    places = [*(f"plot: {path}" for path in plots), f"report: {here(workdir / 'report.md')}"]
    return "\n".join(["", *lines, "", *verdict(spec, report), *samples(spec, workdir), *places, ""])


def verdict(spec: JobSpec, report: Report) -> list[str]:
    """Lines that say how training changed exact search; none unless both encoders were measured."""
    measure = spec.evaluate.measures[0]
    lines = []
    for group, row in report.encoders.items():
        base, trained = (row.systems[name][measure] for name in ENCODERS)
        learned = report.learned(measure, group)
        worse = ": training made it worse" if learned.high < 0 else ""
        what = "exact search" if group == "all" else f"the {row.queries:,} of {report.queries:,} queries with {group}"
        lines.append(
            f"{what}, {measure}: {trained:.3f} with the trained encoder, {base:.3f} with the base one, "
            f"{tables.said(learned)}{worse}"
        )
    return ["* a difference whose interval excludes 0", "", *lines, ""] if lines else []


def samples(spec: JobSpec, workdir: Location) -> list[str]:
    """Five questions of the evaluated split, evenly spaced by id, each with the best answers found."""
    corpus = current.artifact(workdir, current.read(workdir), "corpus")
    judged = columns.read([corpus.path(f"judgements/{spec.evaluate.split}.parquet")], ["query_id", "doc_id", "grade"])
    right = {(row["query_id"], row["doc_id"]) for row in judged.to_pylist() if row["grade"] > 0}
    asked = set(judged["query_id"].to_pylist())
    queries = [
        row
        for row in columns.read([corpus.path("queries.parquet")], ["query_id", "text"]).to_pylist()
        if row["query_id"] in asked
    ]
    queries.sort(key=lambda row: str(row["query_id"]))
    chosen = queries[:: max(1, len(queries) // QUESTIONS)][:QUESTIONS]
    lines, texts = [], [row["text"] for row in chosen]
    found = Searcher.open(workdir).search(texts, ANSWERS, filter=spec.measured)
    for row, answer in zip(chosen, found, strict=True):
        lines.append(f"? {_short(row['text'])}  ({answer.documents:,} documents visited, {answer.fraction:.1%})")
        for hit in answer.hits:
            mark = "*" if (row["query_id"], hit.id) in right else " "
            lines.append(f" {mark} {hit.score:.3f}  {_short(f'{hit.title or hit.id}: {hit.text}')}")
    return [*lines, "* judged relevant", ""]


def _short(text: str) -> str:
    """One line of at most `WIDTH` characters."""
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
