"""The command `rayhier search`: searches an index for one query, each line of standard input, or each row of a file."""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rayhier.command import Parser, run_command
from rayhier.progress import say
from rayhier.spec import InputError
from rayhier.spec.corpus import passages_of
from rayhier.storage.paths import locate

if TYPE_CHECKING:
    from rayhier.search.request.hits import Answer
    from rayhier.search.request.request import Request, Rules
    from rayhier.search.snapshot import Snapshot

LINE_WIDTH, LEAVES, MOST = 100, 10, 10_000
"""Characters of a printed line, number of leaves that are printed, and largest -k and --beam."""
TOGETHER = 64
"""Number of queries from standard input that are searched in one batch."""
NAME = "query"


def main(arguments: Sequence[str] | None = None) -> int:
    """Search an index, and print results and how many documents were visited. Returns the exit status."""
    parsed = _parser().parse_args(arguments)
    return run_command(lambda: _search(parsed))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="rayhier search", description="Search a built index.")
    parser.add_argument("workdir", help="folder, s3:// or gs:// prefix of a run that built an index")
    parser.add_argument("query", nargs="?", help="text of the query (default: reads queries, one per line)")
    parser.add_argument("-k", type=_count, default=10, help="number of results (default 10)")
    parser.add_argument("--beam", type=_count, default=None, help="most leaves to visit (default: the spec's)")
    parser.add_argument(
        "--budget",
        type=_calls,
        default=None,
        help="most documents that a cross-encoder reads. With 0, none are re-ranked (default: the spec's)",
    )
    parser.add_argument("--mode", help="order of results: dense, bm25 or hybrid (default: the spec's)")
    parser.add_argument(
        "--queries", type=Path, metavar="FILE", help="with --out: a file of queries, .jsonl, .tsv or .parquet"
    )
    parser.add_argument(
        "--documents", action="store_true", help="with --out: find the neighbours of all documents of the index"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="file for all results: .parquet, .jsonl or .trec")
    parser.add_argument("--plan", action="store_true", help="with --out: print the plan, and stop")
    parser.add_argument("--filter", metavar="JSON", help="""only documents like these: '{"year": {"gte": 2019}}'""")
    return parser


def _search(parsed: argparse.Namespace) -> None:
    request = _checked(parsed)  # a bad request is refused before anything large is loaded
    if parsed.out is not None:
        _batch(parsed, request)
        return
    say(f"loading index and encoder from {parsed.workdir}")
    from rayhier.scores.call_budget import ScorerError
    from rayhier.search.snapshot import Snapshot

    searcher = Snapshot.open(parsed.workdir)
    for queries in _queries(parsed.query):
        where = None if parsed.filter is None else _parse(parsed.filter, searcher.rules.fields)
        given = {"budget": parsed.budget, "name": NAME}
        request = searcher.rules.request(queries, parsed.k, parsed.beam, where, parsed.mode, **given)
        try:
            answers = searcher.answer(request)
        except ScorerError as error:
            raise InputError(str(error)) from error
        for query, answer in zip(queries, answers, strict=True):
            if parsed.query is None:
                print(f"? {query}")
            print("\n".join(lines(searcher, request, answer)), flush=True)


def _batch(parsed: argparse.Namespace, request: "Request") -> None:
    from rayhier.search.batch.job import Job, plan
    from rayhier.search.batch.query_files import IndexDocuments, QueryFile
    from rayhier.search.index import reading_leaf_map
    from rayhier.search.request.request import rules_of
    from rayhier.search.routing.chosen_beam import calibration_of
    from rayhier.storage import current

    arguments = {"k": parsed.k, "beam": parsed.beam, "mode": parsed.mode, "budget": parsed.budget}
    arguments["filter"] = None if parsed.filter is None else json.loads(parsed.filter)
    workdir, began = locate(parsed.workdir), time.monotonic()
    now = current.read(workdir)
    with reading_leaf_map(workdir, now) as leaf_map:
        rules = rules_of(now.spec, leaf_map.manifest, calibration_of(workdir, now))
        queries = IndexDocuments(leaf_map) if parsed.documents else QueryFile(parsed.queries, rules)
        job = Job(queries, leaf_map.manifest, rules, parsed.out, arguments)
        job.check()
        for line in plan(job, leaf_map, request):
            say(f"  {line}")
        if parsed.plan:
            return
        from rayhier.search.snapshot import Snapshot

        with contextlib.closing(Snapshot.of_version(workdir, now, job.manifest.version)) as searcher:
            answered, refused = job.run(searcher)
    if refused:
        say(f"  {refused}")
    summary = {"queries": answered, "refused": dict(refused.counts), "out": str(parsed.out)}
    print(json.dumps({**summary, "seconds": round(time.monotonic() - began, 1)}))


def _checked(parsed: argparse.Namespace) -> "Request":
    """Return a request with the command line's settings. InputError if options conflict, or the index forbids them."""
    sources = {"a query": parsed.query, "--queries": parsed.queries, "--documents": parsed.documents or None}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{given[-1]}: got {given[0]} too; allowed: one of them")
    is_batch = parsed.queries is not None or parsed.documents
    if is_batch and parsed.out is None:
        raise InputError(f"{given[0]}: got no --out; allowed: with --out FILE for the results")
    if not is_batch and (parsed.out is not None or parsed.plan):
        raise InputError("--out, --plan: got a single query; allowed: with --queries or --documents")
    queries: Any = [] if parsed.query is None else [_text(parsed.query)]
    rules = published_rules(parsed.workdir)
    if parsed.documents:
        queries = np.zeros((0, rules.dimension or 0), np.float32)
    where = None if parsed.filter is None else _parse(parsed.filter, rules.fields)
    name = "--documents" if parsed.documents else NAME
    return rules.request(queries, parsed.k, parsed.beam, where, parsed.mode, budget=parsed.budget, name=name)


def published_rules(place: str) -> "Rules":
    """Read the rules for requests to a workdir's index, from spec and manifest. InputError if there is no index."""
    from rayhier.search.request.request import rules_of
    from rayhier.search.routing.chosen_beam import calibration_of
    from rayhier.storage import current
    from rayhier.storage.leaf_map import LeafMap

    workdir = locate(place)
    now = current.read(workdir)
    manifest = LeafMap.open(current.artifact(workdir, now, "index").root).manifest
    return rules_of(now.spec, manifest, calibration_of(workdir, now))


def _parse(text: str, fields: Mapping[str, Any]) -> Any:
    from rayhier.spec.filter import parse_json

    return parse_json(text, fields, "--filter")


def _text(text: str) -> str:
    from rayhier.spec.query import check_text

    try:
        return check_text(text)
    except ValueError as error:
        raise InputError(f"{NAME}: {error}") from None


def _queries(query: str | None) -> Iterator[list[str]]:
    if query is not None:
        yield [query]
        return
    if sys.stdin.isatty():
        while (line := _prompted()) is not None:
            if line.strip():
                yield [_text(line)]
        return
    group: list[str] = []
    for line in sys.stdin:
        if line.strip():
            group.append(_text(line.rstrip("\r\n")))
        if len(group) == TOGETHER:
            yield group
            group = []
    if group:
        yield group


def _prompted() -> str | None:
    """Read a line at a prompt. None at the end of input."""
    try:
        return input("query> ")
    except EOFError:
        print()
        return None


def lines(searcher: "Snapshot", request: "Request", answer: "Answer") -> Iterator[str]:
    """Yield the lines that show a query's answer: its results, then the documents and leaves visited for them."""
    visits_leaves = request.beam > 0
    if answer.hits:
        yield f"{'':>3}  {'score':<7}{'leaf':<8} {'document'}" if visits_leaves else f"{'':>3}  {'score':<7} document"
    for place, hit in enumerate(answer.hits, start=1):
        shown = hit.title or " ".join(hit.text.split())
        name = shown if shown == hit.id else f"{hit.id}  {shown}"
        score = f"{'~' if hit.estimated else ''}{hit.score:.4f}"
        leaf = f"{hit.leaf:<8} " if visits_leaves else " "
        yield f"{place:>3}  {score:<7}{leaf}{name[:LINE_WIDTH]}"
        if hit.title and hit.text:
            yield f"{'':5}{' '.join(hit.text.split())[:LINE_WIDTH]}"
        if line := fields_line(hit.fields):
            yield f"{'':5}{line[:LINE_WIDTH]}"
    if answer.calls is not None:
        yield f"the cross-encoder read {answer.calls:,} documents (~ marks estimated scores)"
    unit = "passages" if passages_of(searcher.spec.corpus) else "documents"
    matching = unit if request.where is None else f"{unit} that match"
    if request.mode != "dense":
        fusion = searcher.rules.search.hybrid
        how = "by ranks" if fusion.fuse == "rank" else f"weight {fusion.chosen:g}"
        added = f" (BM25, {how})" if request.mode == "hybrid" else ""
        number = f"{len(searcher):,} " if request.where is None else ""
        yield f"compared the words of all {number}{matching}{added}"
    if request.where is not None and not answer.enough:
        yield f"documents that match: {len(answer.hits)}, fewer than k ({request.k})"
    if request.mode == "bm25":
        return
    if searcher.levels is not None:
        similarity = searcher.levels.similarity
        again = f"and {answer.scored:,} of them by their vectors"
        yield f"compared all {answer.documents:,} {matching} by {similarity.numbers}, {again}"
        return
    named = [*map(str, answer.leaves[:LEAVES]), *(["…"] if len(answer.leaves) > LEAVES else [])]
    leaves = f"{len(answer.leaves)} of {searcher.rules.leaves:,} leaves: {', '.join(named)}"
    yield f"visited {answer.documents:,} {matching} ({answer.fraction:.1%}) in {leaves}"


def fields_line(fields: Mapping[str, Any]) -> str:
    """Format a document's declared fields on one line. "" if the document has no field.

    >>> fields_line({"year": 2021, "lang": "en", "by": "Ann Lee", "open": True, "price": None})
    'year=2021 lang=en by="Ann Lee" open=true'
    """
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items() if value is not None)


def _value(value: object) -> str:
    plain = isinstance(value, str) and value.isprintable() and value and not {" ", '"'} & set(value)
    return str(value) if plain else json.dumps(value, ensure_ascii=not str(value).isprintable())


def _calls(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: 1 to {MOST}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
