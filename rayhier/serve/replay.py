"""`python -m rayhier.serve.replay QUERIES`: asks a server many questions: how near exact its answers are, how fast.

Exact is what the same server finds when a question visits every leaf.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rayhier.serve.client import Client
from rayhier.serve.errors import ApiError
from rayhier.serve.models import IndexResponse, SearchResponse

KEYS = ("query", "text", "question")
"""Keys of a JSON line that may hold a question."""
MOST = 100_000
"""Questions that are asked, at most."""


@dataclass(frozen=True)
class Replayed:
    """One question's answers: as the server searches, and with every leaf visited."""

    recall: float
    """Share of the exact results that were found."""
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
        client = Client(given.url, token)
        index = client.index()
        found = replay(client, index, questions, given.k, given.beam, max(1, given.clients))
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
    client: Client, index: IndexResponse, questions: Sequence[str], k: int, beam: int | None, clients: int
) -> list[Replayed]:
    """Ask every question twice: as the server searches, and exactly. ValueError where it may not be asked exactly."""
    if index.how == "level":
        raise ValueError("this index is searched by a level of its tree, which visits all documents already")
    most = int(str(index.limits["max_beam"]))
    if most < index.leaves:
        raise ValueError(f"limits.max_beam is {most}, but exact search visits {index.leaves} leaves; raise the limit")

    def asked(question: str) -> Replayed:
        answer, ms = _timed(lambda: client.search(question, k, beam))
        exact = client.search(question, k, index.leaves)
        wanted = {result.id for result in exact.results}
        hits = sum(result.id in wanted for result in answer.results)
        return Replayed(hits / max(1, len(wanted)), ms, answer.visited.fraction, answer.partial)

    with ThreadPoolExecutor(clients) as threads:
        return list(threads.map(asked, questions))


def _timed(ask: Callable[[], SearchResponse]) -> tuple[SearchResponse, float]:
    began = time.perf_counter()
    answer = ask()
    return answer, 1e3 * (time.perf_counter() - began)


def shown(found: Sequence[Replayed], index: IndexResponse, k: int) -> str:
    """A table of what came out."""
    ms = sorted(one.ms for one in found)
    rows = {
        "questions": f"{len(found):,}",
        f"recall of exact, first {k}": f"{sum(one.recall for one in found) / len(found):.4f}",
        "visited": f"{sum(one.visited for one in found) / len(found):.2%} of {index.documents:,} documents",
        "ms, median": f"{ms[len(ms) // 2]:.1f}",
        "ms, 95%": f"{ms[min(len(ms) - 1, int(0.95 * len(ms)))]:.1f}",
        "partial answers": f"{sum(one.partial for one in found):,}",
        "version": str(index.version),
    }
    return "\n".join(f"{name:<28}{value}" for name, value in rows.items())


if __name__ == "__main__":
    sys.exit(main())
