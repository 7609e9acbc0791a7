"""`python -m rayhier.search WORKDIR "question" -k 10`: one query from the shell."""

import argparse
import sys
from collections.abc import Sequence

from rayhier.spec import InputError
from rayhier.storage.paths import locate

SHOWN, LEAVES, MOST = 100, 10, 10_000
"""Characters of a hit's line, leaves that are named, and what -k and --beam may be."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print hits with leaf, score and title, and how many documents were visited."""
    parser = argparse.ArgumentParser(prog="python -m rayhier.search", description="Search a built index.")
    parser.add_argument("workdir", help="folder, or s3:// or gs:// prefix, a run has built an index in")
    parser.add_argument("question", help="what to look for")
    parser.add_argument("-k", type=_count, default=10, help="results (default 10)")
    parser.add_argument("--beam", type=_count, default=None, help="leaves visited (default: the spec's)")
    given = parser.parse_args(arguments)
    try:
        from rayhier.corpus.check import encodes
        from rayhier.search.searcher import Searcher

        if not encodes(given.question):
            raise InputError("question: got bytes that are no UTF-8; allowed: any text")
        if not given.question.strip():
            raise InputError("question: got no words; allowed: one or more")
        searcher = Searcher.open(locate(given.workdir))
        answer = searcher.search([given.question], given.k, given.beam)[0]
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for place, hit in enumerate(answer.hits, start=1):
        shown = hit.title or " ".join(hit.text.split())
        name = shown if shown == hit.id else f"{hit.id}  {shown}"
        print(f"{place:>3}  {hit.score:.4f}  leaf {hit.leaf:<6} {name[:SHOWN]}")
    named = [*map(str, answer.leaves[:LEAVES]), *(["…"] if len(answer.leaves) > LEAVES else [])]
    where = f"{len(answer.leaves)} of {searcher.model.router.n_leaves:,} leaves: {', '.join(named)}"
    print(f"visited {answer.documents:,} documents ({answer.fraction:.1%}) in {where}")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: 1 to {MOST}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
