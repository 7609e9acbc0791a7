"""`python -m rayhier.serve.replay QUERIES`: asks a server many questions: how near exact its answers are, how fast.

Exact is what the same server finds when a question visits every leaf. Where the index re-ranks, both are compared
before that; the times are those of questions as they are served.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rayhier.serve.client import Client
from rayhier.serve.errors import ApiError
from rayhier.serve.http.models import IndexResponse, SearchResponse

KEYS = ("query", "text", "question")
"""Keys of a JSON line that may hold a question."""
MOST = 100_000
"""Questions that are asked, at most."""
PATIENCE = 5
"""How often a question that is not timed is asked again where the server is busy."""


@dataclass(frozen=True)
class Replayed:
    """One question's answers: as the server searches, and with every leaf visited."""

    recall: float | None
    """Share of the exact results that were found; None where there are none."""
    ms: float
    """Milliseconds until the answer was there."""
    visited: float
    """Documents visited, as a fraction of the corpus."""
    partial: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, and print one table; the exit code is 2 where the server or the file is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m rayhier.serve.replay", description="Ask a server many questions.")
    parser.add_argument("queries", type=Path, help="a question a line, or JSON lines with query, text or question")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server (default: this machine, port 8000)")
    parser.add_argument("--token-file", type=Path, default=None, help="file of one line, the token")
    parser.add_argument("-k", type=int, default=10, help="results of a question (default 10)")
    parser.add_argument("--beam", type=int, default=None, help="leaves to visit (default: the server's)")
    parser.add_argument("--clients", type=int, default=1, help="questions that are asked at a time (default 1)")
    given = parser.parse_args(arguments)
    try:
        questions = read_questions(given.queries)
        token = None if given.token_file is None else given.token_file.read_text().strip()
        client, hasty = Client(given.url, token, retries=PATIENCE), Client(given.url, token, retries=0)
        index = client.index()
        found = replay(hasty, client, index, questions, given.k, given.beam, max(1, given.clients))
    except (ApiError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(shown(found, index, given.k))
    return 0


def read_questions(path: Path) -> list[str]:
    """Questions of a file; ValueError where a line is not one, or there is none."""
    questions = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        question: object = line.strip()
        if line.lstrip().startswith("{"):
            try:
                row = json.loads(line)
            except ValueError:
                raise ValueError(f"{path}:{number}: not JSON") from None
            question = next((row[key] for key in KEYS if key in row), None)
        if not isinstance(question, str) or not question.strip():
            raise ValueError(f"{path}:{number}: holds no question; allowed: text, or JSON with {', '.join(KEYS)}")
        questions.append(question)
    if not 0 < len(questions) <= MOST:
        raise ValueError(f"{path}: got {len(questions):,} questions; allowed: 1 to {MOST:,}")
    return questions


def replay(
    hasty: Client,
    client: Client,
    index: IndexResponse,
    questions: Sequence[str],
    k: int,
    beam: int | None,
    clients: int,
) -> list[Replayed | None]:
    """Ask every question as the server searches, and exactly; None where it refused one that was timed.

    `hasty` asks what is timed, and never twice. ValueError where none may be asked exactly, or all were refused.
    """
    _check(index)
    plain = None if index.rerank == "none" else False

    def timed(question: str) -> tuple[SearchResponse, float] | None:
        try:
            return _timed(lambda: hasty.search(question, k, beam))
        except ApiError as error:
            if error.status == 503:
                return None
            raise

    def compared(question: str, answer: SearchResponse, ms: float) -> Replayed:
        bare = partial(client.search, rerank=plain, include=[], strict=True)
        scanned = answer if plain is None else bare(question, k, beam)
        return Replayed(_recall(scanned, bare(question, k, index.leaves)), ms, answer.visited.fraction, answer.partial)

    with ThreadPoolExecutor(clients) as threads:
        first = list(threads.map(timed, questions))  # all of them before any exact search, which takes long
        if not any(first):
            raise ValueError("the server refused every question; ask fewer at a time: --clients")
        pairs = [(question, one) for question, one in zip(questions, first, strict=True)]
        return list(threads.map(lambda pair: pair[1] and compared(pair[0], *pair[1]), pairs))


def _check(index: IndexResponse) -> None:
    """ValueError where an index is searched in all documents anyway, or may not be."""
    why = {
        "is searched by a level of its tree, which visits all documents": index.how == "level",
        "is searched by BM25, which visits no leaves": index.mode == "bm25",
        "re-ranks documents of all leaves": index.rerank != "none" and index.pool == "all",
    }
    for said in (said for said, holds in why.items() if holds):
        raise ValueError(f"this index {said}: there is nothing to compare with")
    most = int(index.limits["max_beam"])
    if most < index.leaves:
        allowed = f"allowed: a server whose config says limits: {{max_beam: {index.leaves}}}, or more"
        raise ValueError(f"limits.max_beam is {most}, but exact search visits {index.leaves} leaves; {allowed}")


def _recall(found: SearchResponse, exact: SearchResponse) -> float | None:
    """Share of the exact results that were found; None where there are none."""
    wanted = {result.id for result in exact.results}
    return sum(result.id in wanted for result in found.results) / len(wanted) if wanted else None


def _timed(ask: Callable[[], SearchResponse]) -> tuple[SearchResponse, float]:
    began = time.perf_counter()
    answer = ask()
    return answer, 1e3 * (time.perf_counter() - began)


def shown(asked: Sequence[Replayed | None], index: IndexResponse, k: int) -> str:
    """A table of what came out."""
    found = [one for one in asked if one is not None]
    recalls = [one.recall for one in found if one.recall is not None]
    ms = sorted(one.ms for one in found)
    rows = {
        "questions": f"{len(asked):,}",
        "refused (503), left out": f"{len(asked) - len(found):,}",
        f"recall of exact, first {k}": f"{sum(recalls) / len(recalls):.4f}" if recalls else "-",
        "no exact results, left out": f"{len(found) - len(recalls):,}",
        "visited": f"{sum(one.visited for one in found) / len(found):.2%} of {index.documents:,} documents",
        "ms, median": f"{ms[len(ms) // 2]:.1f}",
        "ms, 95%": f"{ms[min(len(ms) - 1, int(0.95 * len(ms)))]:.1f}",
        "partial answers": f"{sum(one.partial for one in found):,}",
        "version": str(index.version),
    }
    return "\n".join(f"{name:<28}{value}" for name, value in rows.items())


if __name__ == "__main__":
    sys.exit(main())
