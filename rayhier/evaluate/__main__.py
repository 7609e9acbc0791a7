"""Measure a published index with other queries: `rayhier eval WORKDIR --queries FILE --judgements FILE`."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rayhier.command import run_command
from rayhier.progress import say
from rayhier.spec import InputError
from rayhier.storage import current
from rayhier.storage.paths import Location, locate

if TYPE_CHECKING:
    from rayhier.dataset.measures import Judge
    from rayhier.dataset.queries import Queries
    from rayhier.evaluate.files import Run
    from rayhier.search.request.request import Request
    from rayhier.search.snapshot import Snapshot
    from rayhier.spec.corpus import Language

TOGETHER = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Print measures of the index with the spec's settings, of exact search, and of BM25. Returns the exit code."""
    options = _parser().parse_args(arguments)
    return run_command(lambda: print("\n".join(_measure(options))))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rayhier eval",
        description="Measure a published index with other queries than those of its run, without training or building.",
        allow_abbrev=False,
    )
    parser.add_argument("workdir", help="folder, or s3:// or gs:// prefix, of a run that built an index")
    parser.add_argument(
        "--queries",
        type=Path,
        required=True,
        help="JSON lines, .csv or .parquet with the spec's query columns or _id and text, or lines of ID TAB TEXT",
    )
    parser.add_argument(
        "--judgements",
        type=Path,
        required=True,
        help="BEIR's three columns or TREC's four (qrels), or .csv or .parquet",
    )
    parser.add_argument("--trec", type=Path, help="file to write the index's ranking to, as a TREC run")
    parser.add_argument("--compare", metavar="RUN", type=Path, help="TREC run of another search, to measure it too")
    parser.add_argument("--beam", type=int, help="most leaves that a query visits (default: the spec's)")
    parser.add_argument("--mode", help="dense, bm25 or hybrid (default: the spec's)")
    return parser


def _measure(options: argparse.Namespace) -> list[str]:
    from rayhier.evaluate.files import aligned, cell, judged, read_judgements, read_queries, read_run, trec

    workdir = locate(options.workdir)
    if options.trec is not None and (options.trec.is_dir() or not options.trec.parent.is_dir()):
        raise InputError(f"--trec: got {options.trec}; allowed: a file in a folder that exists")
    columns = current.read(workdir).spec.corpus.row_query_columns
    texts, grades = read_queries(options.queries, columns), read_judgements(options.judgements)
    queries = judged(texts, grades)
    other = None if options.compare is None else read_run(options.compare, queries)
    say(f"loading index and encoder from {options.workdir}")
    from rayhier.dataset.measures import Judge
    from rayhier.dataset.queries import relevant
    from rayhier.search.snapshot import Snapshot

    searcher = Snapshot.open(workdir)
    spec = searcher.model.spec
    answers = {name for query in queries.ids for name in relevant(queries.grades[query])}
    indexed = searcher.leaves.holds(answers)
    if not indexed:
        raise InputError(
            f"--judgements: none of {len(answers):,} answers is in the index (for instance {min(answers)!r}); "
            "allowed: ids as the index has them"
        )
    measures, judge = spec.evaluate.measures, Judge(queries, spec.evaluate.measures)
    k = max(spec.search.k, *(int(measure.partition("@")[2]) for measure in measures))
    requests = {"as searched": searcher.rules.request(queries.texts, k, options.beam, mode=options.mode)}
    requests |= _controls(searcher, queries.texts, k)
    searcher.retrieve(requests["as searched"].part(slice(0, TOGETHER)))  # opens files before timing
    rows, runs = [], {}
    for name, request in requests.items():
        ranked, visited, seconds = _ranked(searcher, request, judge)
        runs[name] = ranked
        values = judge.mean_of(ranked)
        costs = f"{visited / max(1, searcher.manifest.documents):.1%}", f"{1e3 * seconds / len(queries):.1f}"
        rows.append([name, *(cell(values[m]) for m in measures), *costs])
    if other is not None:
        values = judge.mean_of(other)
        rows.append([options.compare.name, *(cell(values[m]) for m in measures), "", ""])
    lines = [
        (f"{len(queries):,} judged queries, {searcher.leaf_map.size}, version {searcher.manifest.version}"),
        "",
        *aligned(["system", *measures, "visited", "ms per query"], rows),
    ]
    if other is not None:
        lines += _compared(judge, queries, runs["as searched"], other, options.compare, searcher.manifest.language)
    if missing := len(answers - indexed):
        lines.append(f"{missing:,} of {len(answers):,} answers are not in the index and count as not found")
    if trained := _trained_on(workdir, queries.texts):
        lines.append(f"{trained:,} of these queries are train queries of this index, so they say little about others")
    if unjudged := len(texts) - len(queries):
        lines.append(f"{unjudged:,} queries have no judgements and were left out")
    if unknown := len(grades.keys() - texts.keys()):
        lines.append(f"{unknown:,} judged queries are not among those of {options.queries} and were left out")
    if options.trec is not None:
        options.trec.write_text(trec("rayhier", runs["as searched"]), "utf-8")
        lines.append(f"TREC run: {options.trec}")
    return lines


def _compared(
    judge: "Judge", queries: "Queries", ours: "Run", theirs: "Run", path: Path, language: "Language"
) -> list[str]:
    """Say by how much this index is above another run, with an interval over families of queries."""
    import numpy as np

    from rayhier.dataset.families import families
    from rayhier.dataset.queries import relevant
    from rayhier.dataset.words import words
    from rayhier.evaluate.significance import FEWEST, bootstrap

    measure = judge.measures[0]
    difference_Q = judge.values_of(ours)[measure] - judge.values_of(theirs)[measure]
    answers = [relevant(queries.grades[query]) for query in queries.ids]
    family_Q = families([words(text, language) for text in queries.texts], answers)
    (gain,) = bootstrap(difference_Q[:, None], family_Q)
    interval = f"95% interval {gain.low:+.3f} to {gain.high:+.3f}"
    few = "" if len(np.unique(family_Q)) >= FEWEST else ". So few families of queries cannot tell this from chance"
    lines = [f"{measure} as searched minus {path.name}: {np.mean(difference_Q):+.3f} ({interval}){few}"]
    if absent := sum(query not in theirs for query in queries.ids):
        lines.append(f"judged queries that are not in {path}, and count as not found there: {absent:,}")
    return lines


def _trained_on(workdir: Location, texts: Sequence[str]) -> int:
    from rayhier.dataset.families import normal
    from rayhier.dataset.queries import load_texts

    try:
        trained = load_texts(current.artifact(workdir, current.read(workdir), "corpus"), ["train"])
    except (InputError, OSError):
        return 0
    known = set(map(normal, trained.values()))
    return sum(normal(text) in known for text in texts)


def _controls(searcher: "Snapshot", texts: Sequence[str], k: int) -> dict[str, "Request"]:
    rules = searcher.rules
    controls = {}
    if rules.search.how != "level":
        controls["exact, same encoder"] = rules.request(texts, k, rules.leaves, mode="dense", rerank=False)
    if rules.usual_mode == "hybrid":
        controls["vectors alone"] = rules.request(texts, k, mode="dense", rerank=False)
    if rules.words:
        controls["BM25"] = rules.request(texts, k, mode="bm25", rerank=False)
    return controls


def _ranked(
    searcher: "Snapshot", request: "Request", judge: "Judge"
) -> tuple[dict[str, dict[str, float]], float, float]:
    if request.budget and searcher.reranker is None:
        raise InputError("search.rerank: the index has no cross-encoder")
    run: dict[str, dict[str, float]] = {}
    visited, began = 0, time.perf_counter()
    for start in range(0, len(request.queries), TOGETHER):
        rows = slice(start, start + TOGETHER)
        ranking = searcher.retrieve(request.part(rows)).ranking
        run |= judge.run(ranking, judge.query_ids[rows])
        visited += int(ranking.visited_Q.sum())
    return run, visited / len(request.queries), time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
