"""`python -m rayhier.search WORKDIR "question" -k 10`: one query from the shell."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rayhier.spec import InputError
from rayhier.storage.paths import locate

AGAIN = {"level": "the deepest level", "vectors": "their vectors"}
"""What scores a shortlist again, in words."""
LINE_WIDTH, LEAVES, MOST = 100, 10, 10_000
"""Characters of a printed line, leaves that are named, and the largest -k and --beam."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print hits with leaf, score, title and declared fields, and how many documents were visited."""
    parser = argparse.ArgumentParser(prog="python -m rayhier.search", description="Search a built index.")
    parser.add_argument("workdir", help="folder, or s3:// or gs:// prefix, where a run built an index")
    parser.add_argument("question", help="the question, as text")
    parser.add_argument("-k", type=_count, default=10, help="number of results (default 10)")
    parser.add_argument("--beam", type=_count, default=None, help="most leaves to visit (default: the spec's)")
    parser.add_argument(
        "--budget",
        type=_calls,
        default=None,
        help="most documents that a cross-encoder reads; 0: none are re-ranked (default: the spec's)",
    )
    parser.add_argument("--mode", help="dense, bm25 or hybrid: what orders results (default: the spec's)")
    parser.add_argument("--filter", metavar="JSON", help="""only documents like these: '{"year": {"gte": 2019}}'""")
    given = parser.parse_args(arguments)
    from rayhier.scores.call_budget import ScorerError

    try:
        from rayhier.corpus.check import encodes
        from rayhier.search.searcher import Searcher
        from rayhier.spec.filter import parse_json

        if not encodes(given.question):
            raise InputError("question: got bytes that are not UTF-8; allowed: any text")
        if not given.question.strip():
            raise InputError("question: got no words; allowed: one or more")
        searcher = Searcher.open(locate(given.workdir))
        where = None
        if given.filter is not None:
            where = parse_json(given.filter, searcher.model.spec.corpus.field_types, "--filter")
        request = searcher.rules.request(
            [given.question], given.k, given.beam, where, given.mode, budget=given.budget, name="question"
        )
        answer, mode = searcher.answer(request)[0], request.mode
    except (InputError, OSError, ScorerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for place, hit in enumerate(answer.hits, start=1):
        shown = hit.title or " ".join(hit.text.split())
        name = shown if shown == hit.id else f"{hit.id}  {shown}"
        score = f"{'~' if hit.estimated else ''}{hit.score:.4f}"
        print(f"{place:>3}  {score}  leaf {hit.leaf:<6} {name[:LINE_WIDTH]}")
        if line := fields_line(hit.fields):
            print(f"{'':5}{line[:LINE_WIDTH]}")
    if answer.calls is not None:
        print(f"read {answer.calls:,} documents by the cross-encoder; ~ scores are estimates")
    matching = "" if where is None else " that match"
    if mode != "dense":
        print(f"compared the words of all {searcher.manifest.documents:,} documents{matching}")
    if where is not None and not answer.enough:
        every = request.beam == 0 or len(answer.leaves) == searcher.rules.leaves
        within = "" if every else f" in the {len(answer.leaves):,} leaves that search.widest allows"
        print(f"only {len(answer.hits)} of {given.k} documents match{within}")
    if mode == "bm25":
        return 0
    if searcher.reader.levels is not None:
        similarity = searcher.reader.levels.similarity
        again = "" if similarity.again == "none" else f", {answer.scored:,} of them again by {AGAIN[similarity.again]}"
        level = f"{2**similarity.level} numbers, level {similarity.level} of the tree"
        print(f"compared all {answer.documents:,} documents{matching} by {level}{again}")
        return 0
    named = [*map(str, answer.leaves[:LEAVES]), *(["…"] if len(answer.leaves) > LEAVES else [])]
    visited = f"{len(answer.leaves)} of {searcher.model.router.n_leaves:,} leaves: {', '.join(named)}"
    print(f"visited {answer.documents:,} documents{matching} ({answer.fraction:.1%}) in {visited}")
    return 0


def fields_line(fields: Mapping[str, Any]) -> str:
    """Format a document's declared fields on one line; "" where it has none.

    >>> fields_line({"year": 2021, "lang": "en", "by": "Ann Lee", "open": True, "price": None})
    'year=2021 lang=en by="Ann Lee" open=true'
    """
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items() if value is not None)


def _value(value: object) -> str:
    """A simple text unquoted; anything else as JSON, which cannot be misread."""
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
