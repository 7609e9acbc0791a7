"""The verdict on an evaluation in a few lines: gain of training, savings of the index, better alternatives."""

from rayhier.evaluate import tables
from rayhier.evaluate.curve import Point
from rayhier.evaluate.report import ENCODERS, Report
from rayhier.spec import JobSpec

EQUAL = 0.001
"""Most that a measure may lose for an index to count as equal to exact search."""
SMALL = 5_000
"""Number of documents that exact search compares within a millisecond on one core (faiss, 384 numbers a vector)."""
MIDDLING = 100_000
"""Number of documents up to which exact search takes a few milliseconds on one core (docs/choosing.md: 6.6)."""
DEAR = 0.5
"""Cost, as a share of exact search's cost, above which an index saves too little to be worth its upkeep."""
NEVER = float("inf")
"""Cost of a system that never reaches a goal."""
SHARE = 0.95
"""Share of exact search's measure at which costs of systems are compared."""


def verdict(spec: JobSpec, report: Report) -> list[str]:
    """Return lines on the gain of training, the beam at which the index equals exact search, better alternatives."""
    beams = [f"Beam: dev chose {told}." for told in dict.fromkeys(chosen.sentence for chosen in report.beams)]
    before = [f"Queries: {report.told_before(spec)}."] if report.asked_before else []
    answers = [*before, *_training(spec, report), *beams, *_hybrid(spec, report), *_reranked(spec, report)]
    return [*answers, *_index(spec, report), *_instead(spec, report)]


def _training(spec: JobSpec, report: Report) -> list[str]:
    """Lines on the change of exact search by training; one line where nothing was trained."""
    measure = spec.evaluate.measures[0]
    if not report.encoders:
        untrained = set(ENCODERS) <= report.systems.keys()
        return [f"Training: the encoder was not trained, {untrained_because(spec)}."] if untrained else []
    sentences = dict.fromkeys(adoption.sentence for adoption in report.adoptions)
    lines = [f"Training: {sentence}." for sentence in sentences]
    if report.keeps_base:
        return [f"{lines[0][:-1]}; encoder.adopt: always keeps it.", *lines[1:]]
    for group, row in report.encoders.items():
        base, trained = (row.systems[name][measure] for name in ENCODERS)
        learned = report.learned(measure, group)
        if report.began_best:
            told = f"no epoch was better on dev than the encoder it began with ({measure} {base:.3f}), which was kept"
            return [*lines, f"Training: {told}; with few dev queries give more, as corpus.judgements.dev."]
        worse = "; training made it worse: keep the base encoder" if learned.high < 0 and not learned.doubt else ""
        queries = "all queries" if group == "all" else f"the {row.queries:,} of {report.queries:,} queries with {group}"
        lines.append(
            f"Training: {measure} of exact search {base:.3f} -> {trained:.3f} over {queries}, {tables.said(learned)}"
            f"{worse}{learned.doubt}."
        )
    return lines


def untrained_because(spec: JobSpec) -> str:
    """Say why the encoder of a spec was not trained."""
    if spec.encoder.train == "none":
        return "as encoder.train says"
    return "as train.objective says" if spec.train.objective == "documents" else "for want of train judgements"


def _hybrid(spec: JobSpec, report: Report) -> list[str]:
    """A line on what BM25 adds to the index, and how its weight was chosen; none where it was not measured."""
    name, measure = report.hybrid, spec.evaluate.measures[0]
    if name is None:
        return []
    alone, both, words = (report.systems[system].measures[measure] for system in (report.router, name, "bm25"))
    ((over,), (beyond,)) = (report.between(name, other, measure) for other in (report.router, "bm25"))
    fusion = spec.search.hybrid
    if fusion.fuse == "rank":
        how = "Hybrid, by ranks"
    elif any(weight.queries for weight in report.weights):
        chosen = ", ".join(dict.fromkeys(f"{weight.weight:g}" for weight in report.weights))
        how = f"Hybrid, with BM25's weight {chosen}, chosen by {report.weights[0].chosen_by}"
    else:
        usual = report.weights[0].weight if report.weights else fusion.chosen
        how = f"Hybrid, with BM25's weight {usual:g}"
    gain, beside = tables.said(over), tables.said(beyond)
    return [f"{how}: {measure} {alone:.3f} -> {both:.3f}, {gain}; over BM25 alone, {words:.3f}, {beside}."]


def _reranked(spec: JobSpec, report: Report) -> list[str]:
    """A line on what the cross-encoder adds to the search whose results it re-ranks, and at what price."""
    name, measure = f"{report.router}+{spec.search.rerank.type}", spec.evaluate.measures[0]
    rows = [row for row in report.significance if (row.system, row.measure, row.queries) == (name, measure, "all")]
    if not rows:
        return []
    after, value = report.systems[name], report.systems[name].measures[measure]
    before = report.systems.get(rows[0].baseline)  # none where seeds are searched differently
    instead = "" if before is None or before.ms is None else f" instead of {before.ms:,.0f}"
    worse = "; it makes results worse: search without it" if rows[0].high < 0 and not rows[0].doubt else ""
    return [
        (
            f"Re-ranked, {after.calls or 0:.0f} calls a query: {measure} {value - rows[0].difference:.3f} -> "
            f"{value:.3f}, {tables.said(rows[0])}, for {after.ms or 0:,.0f} ms a query{instead}"
            f"{worse}{rows[0].doubt}."
        )
    ]


def _index(spec: JobSpec, report: Report) -> list[str]:
    """Return a line on the beam at which the index equals exact search, and on the documents that this saves."""
    measure, exact = spec.evaluate.deepest_recall, report.systems.get("exact_same_encoder")
    if exact is None or report.level is not None or report.router not in report.curves:
        return []
    points, goal = report.points(report.router), exact.measures[measure] - EQUAL
    lines = []
    equal = next((point for point in points if point.measures[measure] >= goal), None)
    used = report.systems[report.router]
    share = used.measures[measure] / max(exact.measures[measure], 1e-9)
    beam = f"the spec's beam ({used.beam:g} leaves)"
    lines.append(
        f"Index: with {beam} it finds {share:.1%} of exact search's {measure} and "
        f"visits {used.visited:.1%} of the documents."
    )
    if equal is not None:
        lines.append(
            f"Index: from a beam of {equal.beam} on it equals exact search, with {equal.visited_mean:.1%} of the "
            f"documents visited, at {equal.cost_mean:.0%} of the cost."
        )
    return lines


def _instead(spec: JobSpec, report: Report) -> list[str]:
    """Lines on a better choice than the index, where there is one."""
    keep = "; keep the encoder" if report.encoders and not report.keeps_base else ""
    if report.documents <= SMALL:
        return [
            (
                f"Instead: {report.documents:,} documents are few: exact search compares all within a millisecond, "
                f"finds everything, and needs no index{keep}."
            )
        ]
    if report.documents <= MIDDLING:
        return [
            (
                f"Instead: exact search compares {report.documents:,} documents within some milliseconds and finds "
                f"everything; where that is fast enough, it needs no index{keep}."
            ),
            *_cheaper(spec, report),
        ]
    return _cheaper(spec, report)


def _cheaper(spec: JobSpec, report: Report) -> list[str]:
    """Lines on a system that reaches a goal at less cost than the index."""
    measure, exact = spec.evaluate.deepest_recall, report.systems.get("exact_same_encoder")
    if exact is None or report.router not in report.curves:
        return []
    goal, encoder = SHARE * exact.measures[measure], "encoder"
    if report.encoders:
        encoder = f"{'base' if report.keeps_base else 'trained'} encoder"
    costs = {name: _cost(report.points(name), measure, goal) for name in report.curves if name != "faiss_ivf"}
    cost = costs.pop(report.router)
    best = min(costs, key=lambda name: costs[name], default=None)
    if cost == NEVER:
        return [f"Instead: this index never reaches {SHARE:.0%} of exact {measure}: search exactly with the {encoder}."]
    if best is not None and costs[best] < cost:
        return [
            (
                f"Instead: {best} reaches {SHARE:.0%} of exact {measure} at {costs[best]:.1%} of its cost, "
                f"this index at {cost:.1%}: use the {encoder} with it."
            )
        ]
    if cost > DEAR:
        return [
            (
                f"Instead: {SHARE:.0%} of exact {measure} costs {cost:.0%} of exact search: search exactly with the "
                f"{encoder}."
            )
        ]
    return []


def _cost(points: list[Point], measure: str, goal: float) -> float:
    """Least cost of the points that reach a goal; infinite where no point does."""
    return min((point.cost_mean for point in points if point.measures[measure] >= goal), default=NEVER)
