"""The verdict on an evaluation in at most five lines."""

from rayhier.evaluate import tables
from rayhier.evaluate.report import ENCODERS, Report
from rayhier.spec import JobSpec

MOST = 5
"""Most lines."""
SMALL = 5_000
"""Number of documents that exact search compares within a millisecond on one core (faiss, 384 numbers a vector)."""
MIDDLING = 100_000
"""Number of documents up to which exact search takes a few milliseconds on one core (docs/choosing.md: 6.6)."""
DEAR = 0.5
"""Cost, as a share of exact search's cost, above which an index saves too little to be worth its upkeep."""
NEVER = float("inf")
SHARE = 0.95
"""Share of exact search's measure at which costs of systems are compared."""


def verdict(spec: JobSpec, report: Report) -> list[str]:
    """Return at most five lines: training, hybrid search, re-ranking, the index, and alternatives to the index."""
    parts = _training(spec, report), _hybrid(spec, report), _reranked(spec, report), _index(spec, report)
    return [*(sentence for sentence in parts if sentence), *_instead(spec, report)][:MOST]


def _training(spec: JobSpec, report: Report) -> str:
    measure = spec.evaluate.measures[0]
    if not report.encoders:
        untrained = set(ENCODERS) <= report.systems.keys()
        return f"Training: the encoder was not trained, {untrained_because(spec)}." if untrained else ""
    if report.keeps_base:
        return f"Training: {report.adoptions[0].sentence}; encoder.adopt: always keeps it."
    gains = list[str]()
    for group in report.groups:
        base, trained = (report.encoders[group].systems[name][measure] for name in ENCODERS)
        learned = report.learned(measure, group)
        of = " for queries with new answers" if group != "all" else " for all queries" if gains else ""
        gains.append(f"{base:.3f} -> {trained:.3f}, {tables.said(learned)}{of}")
    if report.began_best:
        told = f"no epoch was better on dev than the encoder it began with ({measure} {base:.3f}), which was kept"
        return f"Training: {told}; with few dev queries give more, as corpus.judgements.dev."
    worse = "; training made it worse: keep the base encoder" if learned.high < 0 and not learned.doubt else ""
    return f"Training: {measure} of exact search {', and '.join(gains)}{worse}{learned.doubt}."


def untrained_because(spec: JobSpec) -> str:
    if spec.encoder.train == "none":
        return "as encoder.train says"
    if spec.train.objective == "documents":
        return "as train.objective says"
    return f"for want of train judgements{'' if spec.train.draws is None else ' and pseudo-queries'}"


def _hybrid(spec: JobSpec, report: Report) -> str:
    name, measure = report.hybrid, spec.evaluate.measures[0]
    if name is None:
        return ""
    alone, both = (report.systems[system].measures[measure] for system in (report.router, name))
    (over,) = report.between(name, report.router, measure)
    fusion = spec.search.hybrid
    if fusion.fuse == "rank":
        how = "Hybrid, by ranks"
    elif any(weight.queries for weight in report.weights):
        chosen = ", ".join(dict.fromkeys(f"{weight.weight:g}" for weight in report.weights))
        how = f"Hybrid, with BM25's weight {chosen} ({report.weights[0].chosen_by} chose it)"
    else:
        usual = report.weights[0].weight if report.weights else fusion.chosen
        how = f"Hybrid, with BM25's weight {usual:g}"
    return f"{how}: {measure} {alone:.3f} -> {both:.3f}, {tables.said(over)}."


def _reranked(spec: JobSpec, report: Report) -> str:
    name, measure = f"{report.router}+{spec.search.rerank.type}", spec.evaluate.measures[0]
    rows = [row for row in report.significance if (row.system, row.measure, row.queries) == (name, measure, "all")]
    if not rows:
        return ""
    after, value = report.systems[name], report.systems[name].measures[measure]
    before = report.systems.get(rows[0].baseline)  # none where seeds are searched differently
    instead = "" if before is None or before.ms is None else f" instead of {before.ms:,.0f}"
    worse = ". It makes results worse: search without it" if rows[0].high < 0 and not rows[0].doubt else ""
    gain = f"{measure} {value - rows[0].difference:.3f} -> {value:.3f}, {tables.said(rows[0])}"
    cost = f"for {after.ms or 0:,.0f} ms a query{instead}{worse}{rows[0].doubt}"
    return f"Re-ranked, {after.calls or 0:.0f} calls a query: {gain}, {cost}."


def _index(spec: JobSpec, report: Report) -> str:
    measure, exact = spec.evaluate.deepest_recall, report.systems.get("exact_same_encoder")
    if exact is None or report.level is not None or report.router not in report.curves:
        return ""
    used = report.systems[report.router]
    share = used.measures[measure] / max(exact.measures[measure], 1e-9)
    found = f"finds {share:.1%} of exact search's {measure} and visits {used.visited:.1%} of the documents"
    return f"Index: with the spec's beam ({used.beam:g} leaves) it {found}."


def _instead(spec: JobSpec, report: Report) -> list[str]:
    keep = "; keep the encoder" if report.encoders and not report.keeps_base else ""
    documents, cheaper = f"{report.documents:,} documents", _cheaper(spec, report)
    if report.documents <= SMALL:
        few = (
            f"{documents} are few: exact search compares all within a millisecond, finds everything, and needs no index"
        )
        return [f"Instead: {few}{keep}."]
    if report.documents <= MIDDLING:
        fast = f"exact search compares {documents} within some milliseconds and finds everything"
        return [f"Instead: {fast}; where that is fast enough, it needs no index{keep}.", *cheaper]
    return cheaper


def _cheaper(spec: JobSpec, report: Report) -> list[str]:
    measure, exact = spec.evaluate.deepest_recall, report.systems.get("exact_same_encoder")
    if exact is None or report.router not in report.curves:
        return []
    goal, encoder = SHARE * exact.measures[measure], "encoder"
    if report.encoders:
        encoder = f"{'base' if report.keeps_base else 'trained'} encoder"
    costs = {
        name: min((point.cost_mean for point in report.points(name) if point.measures[measure] >= goal), default=NEVER)
        for name in report.curves
        if name != "faiss_ivf"
    }
    cost = costs.pop(report.router)
    best = min(costs, key=lambda name: costs[name], default=None)
    if cost == NEVER:
        return [f"Instead: this index never reaches {SHARE:.0%} of exact {measure}: search exactly with the {encoder}."]
    if best is not None and costs[best] < cost:
        reached = (
            f"{best} reaches {SHARE:.0%} of exact {measure} at {costs[best]:.1%} of its cost, this index at {cost:.1%}"
        )
        return [f"Instead: {reached}: use the {encoder} with it."]
    if cost > DEAR:
        dear = f"{SHARE:.0%} of exact {measure} costs {cost:.0%} of exact search"
        return [f"Instead: {dear}: search exactly with the {encoder}."]
    return []
