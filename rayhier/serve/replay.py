"""The command `python -m rayhier.serve.replay QUERIES`: sends queries to a server; measures recall and times.

Recall is the share of the exact results that an answer has; exact results are those of the same query when it visits
every leaf. Where the index re-ranks, results are compared before re-ranking; times are those of queries as they are
served.
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
"""Keys of a JSON line that may hold a query."""
MOST = 100_000
"""Most queries in a file."""
PATIENCE = 5
"""Number of times that a query that is not timed is sent again where the server is busy."""


@dataclass(frozen=True)
class Replayed:
    """Measures of one query: recall of its answer, milliseconds, documents visited, and whether it was partial."""

    recall: float | None
    """Share of the exact results that are in the answer, 0 to 1; None where there are no exact results."""
    ms: float
    """Milliseconds until the answer arrived."""
    visited: float
    """Documents visited, as a fraction of the corpus."""
    partial: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Send a file's queries to a server and print a table; returns 0, or 2 where server or file are not usable."""
    parser = argparse.ArgumentParser(prog="python -m rayhier.serve.replay", description="Ask a server many queries.")
    parser.add_argument("queries", type=Path, help="a query a line, or JSON lines with query, text or question")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server (default: this machine, port 8000)")
    parser.add_argument("--token-file", type=Path, default=None, help="file of one line, the token")
    parser.add_argument("-k", type=int, default=10, help="results of a query (default 10)")
    parser.add_argument("--beam", type=int, default=None, help="leaves to visit (default: the server's)")
    parser.add_argument("--clients", type=int, default=1, help="queries that are asked at a time (default 1)")
    parsed = parser.parse_args(arguments)
    try:
        queries = read_queries(parsed.queries)
        token = None if parsed.token_file is None else parsed.token_file.read_text().strip()
        client, hasty = Client(parsed.url, token, retries=PATIENCE), Client(parsed.url, token, retries=0)
        index = client.index()
        replayed = replay(hasty, client, index, queries, parsed.k, parsed.beam, max(1, parsed.clients))
    except (ApiError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(shown(replayed, index, parsed.k))
    return 0


def read_queries(path: Path) -> list[str]:
    """Read the queries of a file; ValueError where a line holds none, or where there are none or too many."""
    queries = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        query: object = line.strip()
        if line.lstrip().startswith("{"):
            try:
                row = json.loads(line)
            except ValueError:
                raise ValueError(f"{path}:{number}: not JSON") from None
            query = next((row[key] for key in KEYS if key in row), None)
        if not isinstance(query, str) or not query.strip():
            raise ValueError(f"{path}:{number}: holds no query; allowed: text, or JSON with {', '.join(KEYS)}")
        queries.append(query)
    if not 0 < len(queries) <= MOST:
        raise ValueError(f"{path}: got {len(queries):,} queries; allowed: 1 to {MOST:,}")
    return queries


def replay(
    hasty: Client,
    client: Client,
    index: IndexResponse,
    queries: Sequence[str],
    k: int,
    beam: int | None,
    clients: int,
) -> list[Replayed | None]:
    """Compare every query's answer with exact search; None stands for a query that the server refused.

    `hasty`, a client without retries, sends the queries that are timed; `client` sends the others. `beam` None stands
    for the server's default; `clients` queries are sent at a time. ValueError where the server allows no exact search,
    or refused all queries.
    """
    _check(index)
    plain = None if index.rerank == "none" else False

    def timed(query: str) -> tuple[SearchResponse, float] | None:
        try:
            return _timed(lambda: hasty.search(query, k, beam))
        except ApiError as error:
            if error.status == 503:
                return None
            raise

    def compared(query: str, answer: SearchResponse, ms: float) -> Replayed:
        bare = partial(client.search, rerank=plain, include=[], strict=True)
        scanned = answer if plain is None else bare(query, k, beam)
        return Replayed(_recall(scanned, bare(query, k, index.leaves)), ms, answer.visited.fraction, answer.partial)

    with ThreadPoolExecutor(clients) as threads:
        first = list(threads.map(timed, queries))  # all of them before any exact search, which takes long
        if not any(first):
            raise ValueError("the server refused every query; ask fewer at a time: --clients")
        pairs = list(zip(queries, first, strict=True))
        return list(threads.map(lambda pair: pair[1] and compared(pair[0], *pair[1]), pairs))


def _check(index: IndexResponse) -> None:
    """Raise ValueError where every search of an index is exact, or the server allows no exact search."""
    reasons = {
        f"is searched by {index.how}, which compares all documents": index.how != "leaves",
        "is searched by BM25, which visits no leaves": index.mode == "bm25",
        "re-ranks documents of all leaves": index.rerank != "none" and index.pool == "all",
    }
    for reason in (reason for reason, holds in reasons.items() if holds):
        raise ValueError(f"this index {reason}: there is nothing to compare with")
    most = int(index.limits["max_beam"])
    if most < index.leaves:
        allowed = f"allowed: a server whose config says limits: {{max_beam: {index.leaves}}}, or more"
        raise ValueError(f"limits.max_beam is {most}, but exact search visits {index.leaves} leaves; {allowed}")


def _recall(answer: SearchResponse, exact: SearchResponse) -> float | None:
    """Return the share of the exact results that are in an answer; None where there are no exact results."""
    exact_ids = {result.id for result in exact.results}
    return sum(result.id in exact_ids for result in answer.results) / len(exact_ids) if exact_ids else None


def _timed(ask: Callable[[], SearchResponse]) -> tuple[SearchResponse, float]:
    began = time.perf_counter()
    answer = ask()
    return answer, 1e3 * (time.perf_counter() - began)


def shown(replays: Sequence[Replayed | None], index: IndexResponse, k: int) -> str:
    """Format a table of recall, documents visited and milliseconds over all queries; None: a refused query."""
    answered = [query for query in replays if query is not None]
    recalls = [query.recall for query in answered if query.recall is not None]
    ms = sorted(query.ms for query in answered)
    rows = {
        "queries": f"{len(replays):,}",
        "refused (503), left out": f"{len(replays) - len(answered):,}",
        f"recall of exact, first {k}": f"{sum(recalls) / len(recalls):.4f}" if recalls else "-",
        "no exact results, left out": f"{len(answered) - len(recalls):,}",
        "visited": f"{sum(query.visited for query in answered) / len(answered):.2%} of {index.documents:,} documents",
        "ms, median": f"{ms[len(ms) // 2]:.1f}",
        "ms, 95%": f"{ms[min(len(ms) - 1, int(0.95 * len(ms)))]:.1f}",
        "partial answers": f"{sum(query.partial for query in answered):,}",
        "version": str(index.version),
    }
    return "\n".join(f"{name:<28}{value}" for name, value in rows.items())


if __name__ == "__main__":
    sys.exit(main())
