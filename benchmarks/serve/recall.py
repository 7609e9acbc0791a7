"""Recall as served, and what measuring it costs: `python -m benchmarks.serve.recall WORKDIR`.

An embedded server gets the same queries, as vectors at a steady rate, again and again: without audits, with as many as
by default, and with every query drawn, where only the limit of CPU keeps audits apart. Recall as served is compared
with that of all queries, which are searched offline both ways.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import Options, absolute, clock, count, served
from benchmarks.serve.goals import PATH, K, asked
from benchmarks.serve.load import TOKEN, a_second
from benchmarks.tables import table
from rayhier.arrays import Floats
from rayhier.search.retrieve import Exact
from rayhier.search.searcher import Searcher
from rayhier.serve.backend.audit import share_found
from rayhier.serve.client import Client

PORT, WARM, QUERIES = 8141, 200, 1_000
SHARES = (0.0, 0.01, 1.0)
"""Shares of queries that are drawn."""


def cpu_seconds() -> float:
    """CPU seconds of the server so far: of the process whose command names its port."""
    (folder,) = (path for path in Path("/proc").glob("[0-9]*") if f"\0{PORT}\0".encode() in _command(path))
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _command(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def offline(searcher: Searcher, query_QM: Floats, beam: int | None) -> float:
    """Mean recall of all queries, searched in this process as served and exactly."""
    best: Any = searcher.reader.read(Exact(query_QM, K))
    answers = searcher.search(query_QM, K, beam)
    shares = [
        share_found(np.array([hit.score for hit in answer.hits]), best_K)
        for answer, best_K in zip(answers, best.score_QK, strict=True)
    ]
    return float(np.mean([share for share in shares if share is not None]))


def measure(workdir: Path, bodies: Sequence[bytes], share: float, rate: float, seconds: float) -> list[str]:
    """Serve an index, send queries at a rate, and return a row of the table."""
    token = workdir / "token"
    token.write_text(TOKEN)
    command = ["rayhier", "serve", str(workdir), "--port", str(PORT), "--token-file", str(token)]
    command += ["--set", f"recall.share={share}", "--set", "limits.queue_seconds=10"]
    with served(command, f"http://127.0.0.1:{PORT}/healthz", 300):
        a_second(PORT, PATH, bodies[:WARM], rate, WARM / rate)
        before = cpu_seconds()
        load = a_second(PORT, PATH, bodies, rate, seconds)
        taken = cpu_seconds() - before
        recall = Client(f"http://127.0.0.1:{PORT}", TOKEN).index().recall_served
    told = "-" if recall is None else f"{recall.mean:.4f} ({recall.low:.4f} to {recall.high:.4f})"
    number = "0" if recall is None else f"{recall.queries:,}"
    answered = [f"{len(load.answered()):,}", f"{load.ms(0.5):.1f}", f"{load.ms(0.99):.1f}"]
    return [f"{share:g}", *answered, f"{taken / load.seconds:.1%}", number, told]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    parser = Options("Recall as served, and what measuring it costs.")
    parser.add_argument("index", type=absolute, help="workdir of an index")
    parser.add_argument("--beam", type=count, default=None, help="leaves that a query visits (default: as served)")
    parser.add_argument("--rate", type=float, default=50.0, help="queries a second (default 50)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each row (default 60)")
    parser.add_argument("--rounds", type=count, default=1, help="how often each row is measured (default 1)")
    options = parser.parse_args(arguments)
    searcher, texts = asked(options.index)
    query_QM, report, rows = searcher.model.encode(texts[:QUERIES]).numpy, clock(), []
    more = {} if options.beam is None else {"beam": options.beam}
    bodies = [json.dumps({"vector": vector, "k": K, "include": [], **more}).encode() for vector in query_QM.tolist()]
    for _ in range(options.rounds):
        for share in SHARES:
            rows.append(measure(options.index, bodies, share, options.rate, options.seconds))
            report("  ".join(rows[-1]))
    head = ["share drawn", "answers", "median ms", "99%", "CPU seconds a second", "audited", "recall as served"]
    print("\n".join(["", *table(head, rows)]))
    print(f"\nOffline, all {len(bodies):,} queries: {offline(searcher, query_QM, options.beam):.4f}")


if __name__ == "__main__":
    main()
