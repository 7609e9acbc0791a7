"""The last lines of a run on the terminal: tables, sample queries with their results, file names, and a verdict."""

from rayhier.evaluate import tables
from rayhier.evaluate.output import PLOTS
from rayhier.evaluate.report import NAME, Report
from rayhier.evaluate.samples import samples
from rayhier.evaluate.significance import FEWEST
from rayhier.evaluate.verdict import verdict
from rayhier.progress import here
from rayhier.spec import JobSpec
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import Location

COST = (
    "share of the corpus visited (cost: dot products per query, rows scanned and routing, as a share of the corpus; "
    "time of a single query on one core)"
)
STAR = f"* a difference whose interval, of {FEWEST} families of queries or more, excludes 0"


def closing(spec: JobSpec, workdir: Location, corpus: Artifact, judged: Artifact, root: Location) -> str:
    """Return the last lines of a run for the evaluation that is published below `root`; the verdict comes last.

    `judged` has the evaluated split: `corpus`, or the artifact of the test split.
    """
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
    return "\n".join(
        ["", *lines, "", STAR, "", *samples(spec, corpus, judged, root), *places, "", *verdict(spec, report), ""]
    )
