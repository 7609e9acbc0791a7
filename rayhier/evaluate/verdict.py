"""Give the verdict on an evaluation in at most five lines."""

from rayhier.evaluate.report import ENCODERS, NAMES, Report
from rayhier.evaluate.significance import Difference
from rayhier.progress import counted
from rayhier.spec import JobSpec
from rayhier.spec.corpus import passages_of

MOST = 5
SMALL = 5_000
"""Number of documents that exact search compares within a millisecond on one core (faiss, 384 numbers per vector)."""
MIDDLING = 100_000
"""Number of documents up to which exact search takes a few milliseconds on one core."""
DEAR = 0.5
"""Share of exact search's cost above which an index saves too little for its upkeep."""
NEVER = float("inf")
SHARE = 0.95
"""Share of exact search's measure at which costs of systems are compared."""


def verdict(spec: JobSpec, report: Report) -> list[str]:
    """Say in at most five lines if training, BM25, re-ranking and the index help, and what to do next."""
    parts = _training(spec, report), _hybrid(spec, report), _reranked(spec, report), _index(spec, report)
    return [*(sentence for sentence in parts if sentence), *_next(spec, report)][:MOST]


def _training(spec: JobSpec, report: Report) -> str:
    measure = spec.evaluate.measures[0]
    if not report.encoders:
        untrained = set(ENCODERS) <= report.systems.keys()
        return f"Training: the encoder was not trained, {untrained_because(spec)}." if untrained else ""
    if report.began_best:
        base = report.encoders["all"].systems["exact"][measure]
        kept = f"no epoch found more on dev than the base encoder ({measure} {base:.3f}), so it was kept"
        return f"Training: {kept}. Give more dev queries as corpus.judgements.dev."
    if report.keeps_base:
        return f"Training: {report.adoptions[0].sentence}. encoder.adopt: always keeps the trained encoder."
    told = []
    for group in report.groups:
        base, trained = (report.encoders[group].systems[name][measure] for name in report.trained)
        learned = report.learned(measure, group)
        of = "" if len(report.groups) == 1 else " for all queries" if group == "all" else f" for queries with {group}"
        told.append(f"{_changed(measure, base, trained, learned)}{of}{learned.doubt}.")
    lost = report.is_worse(measure)
    sure = " made results worse" if learned.high < 0 and not learned.doubt else " did not help here"
    worse = f" Training{sure}: use the base encoder, with encoder.train=none." if lost else ""
    words = "" if report.trained == ENCODERS else " with BM25"
    return f"Training{words}: {' '.join(told)}{worse}"


def _changed(measure: str, before: float, after: float, by: Difference) -> str:
    return f"{measure} {before:.3f} -> {after:.3f} (95% interval of the change {by.low:+.3f} to {by.high:+.3f})"


def untrained_because(spec: JobSpec) -> str:
    if spec.encoder.train == "none":
        return "as encoder.train says"
    if spec.train.objective == "documents":
        return "as train.objective says"
    return f"because there are no train judgements{'' if spec.train.draws is None else ' or pseudo-queries'}"


def _hybrid(spec: JobSpec, report: Report) -> str:
    name, measure = report.hybrid, spec.evaluate.measures[0]
    if name is None:
        return ""
    alone, both = (report.systems[system].measures[measure] for system in (report.router, name))
    (over,) = report.between(name, report.router, measure)
    return f"BM25 with the vectors: {_changed(measure, alone, both, over)}{over.doubt}."


def _reranked(spec: JobSpec, report: Report) -> str:
    name, measure = f"{report.router}+{spec.search.rerank.type}", spec.evaluate.measures[0]
    rows = [row for row in report.significance if (row.system, row.measure, row.queries) == (name, measure, "all")]
    if not rows:
        return ""
    after, value = report.systems[name], report.systems[name].measures[measure]
    before = report.systems.get(rows[0].baseline)  # None if seeds are searched in different ways
    instead = "" if before is None or before.ms is None else f" instead of {before.ms:,.0f}"
    worse = " Re-ranking makes results worse: search without it." if rows[0].high < 0 and not rows[0].doubt else ""
    gain = _changed(measure, value - rows[0].difference, value, rows[0])
    cost = f"A query takes {after.ms or 0:,.0f} ms{instead} and {after.calls or 0:.0f} calls of the cross-encoder"
    return f"Re-ranking: {gain}{rows[0].doubt}. {cost}.{worse}"


def _index(spec: JobSpec, report: Report) -> str:
    measure, exact = spec.evaluate.deepest_recall, report.systems.get("exact_same_encoder")
    if exact is None or report.level is not None or report.router not in report.curves:
        return ""
    used = report.systems[report.router]
    share = used.measures[measure] / max(exact.measures[measure], 1e-9)
    reads = f"reads {used.visited:.1%} of the {'documents' if passages_of(spec.corpus) is None else 'passages'}"
    return f"Index: it finds {share:.1%} of what exact search finds ({measure}), and {reads}."


def _next(spec: JobSpec, report: Report) -> list[str]:
    cheaper, serve = _cheaper(spec, report), f"`rayhier serve {spec.workdir}`"
    if report.documents > MIDDLING:
        return cheaper or [f"Next: serve the index with {serve}."]
    documents = counted(report.documents, report.whole)
    took = "a millisecond" if report.documents <= SMALL else "some milliseconds"
    small = f"Exact search compares {documents} within {took}, so you may also use the encoder without this index"
    return [f"Next: try {serve}. {small}.", *(cheaper if report.documents > SMALL else [])]


def _cheaper(spec: JobSpec, report: Report) -> list[str]:
    measure, exact = spec.evaluate.deepest_recall, report.systems.get("exact_same_encoder")
    if exact is None or report.router not in report.curves:
        return []
    goal, encoder = SHARE * exact.measures[measure], "encoder"
    if report.encoders:
        lost = report.is_worse(spec.evaluate.measures[0])
        encoder = f"{'base' if report.keeps_base or report.began_best or lost else 'trained'} encoder"
    costs = {
        name: min((point.cost_mean for point in report.points(name) if point.measures[measure] >= goal), default=NEVER)
        for name in report.curves
        if name != "faiss_ivf"
    }
    cost = costs.pop(report.router)
    best = min(costs, key=lambda name: costs[name], default=None)
    reached = f"{SHARE:.0%} of exact {measure}"
    if cost == NEVER:
        return [f"Next: search exactly with the {encoder}, because this index never reaches {reached}."]
    if best is not None and costs[best] < cost:
        theirs = f"{NAMES.get(best, best)} reaches {reached} at {costs[best]:.1%} of the cost of exact search"
        return [f"Next: try another index with the {encoder}. {theirs}, and this index at {cost:.1%}."]
    if cost > DEAR:
        return [f"Next: search exactly with the {encoder}. {reached} costs {cost:.0%} of exact search."]
    return []
