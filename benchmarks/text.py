"""Measure how long several libraries take to encode texts. Also measure commands and a server.

    make bench NAME=text ARGS="WORKDIR --peers PYTHON PYTHON"

The libraries encode SciFact's texts with the untouched encoder of the workdir, because fastembed has no dense layers.
Each runs in a separate process, by the first interpreter that has it. They take turns after a query, or 256 documents.
Commands and the server search the published index with its own encoder.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks import collection, machine
from benchmarks.commands import Options, absolute, count, served
from benchmarks.encoders import BATCH, ENCODERS, Vectors, process_of
from benchmarks.serve.goals import PATH, K
from benchmarks.serve.load import TOKEN, at_a_time
from benchmarks.tables import Goal, goal_table, quotient, ranged, table
from rayhier.arrays import Values
from rayhier.embed.export import export
from rayhier.embed.onnx import OnnxEncoder
from rayhier.storage import current
from rayhier.storage.model_folder import find

PORT, QUERIES, WARM, TURN = 8133, 300, 30, 256
"""Port of the server, number of queries, how many of them warm up, and number of documents in a turn."""
EMBEDS, EXACT = "rayhier, torch, auto", "rayhier, torch, float32"
"""Encoder of the embed stage, and the encoder that others' vectors are compared with."""
EQUAL = 0.999
"""Least cosine to the exact vector at which an encoder is of equal quality."""
CLIENTS, TIMES = {"text": (1, 16, 64, 128), "vector": (1, 16)}, 5
"""Numbers of clients, and how often several clients ask all queries."""
MISSING = "not installed"
QUERY = "which sorting algorithm is stable"
OPEN = "import rayhier, sys; index = rayhier.open(sys.argv[1])"
GOALS: dict[str, float] = {
    "rayhier search, seconds": 2.5,
    "Python: open, seconds": 1.5,
    "serve: seconds until ready": 3,
    "text, 1 client: p50, ms": 7,
    "text, 16 clients: answers a second": 200,
    "text, 16 clients: share refused": 0,
    "text, 64 clients: share refused": 0,
    "vector, 1 client: p50, ms": 0.8,
    "vector, 16 clients: answers a second": 1_500,
    "serve: memory, MB": 300,
}
"""Goals. Answers a second must be at least the number. Every other figure must be at most the number."""


def main() -> None:
    parser = Options("Time texts: encoded singly and in batches, searched from the shell, and served.")
    parser.add_argument("workdir", type=absolute, help="workdir of a published index")
    parser.add_argument("--peers", nargs="*", default=[], type=absolute, help="interpreters that have other libraries")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of commands and servers (default 3)")
    parser.add_argument("--documents", type=count, default=2_048, help="documents to encode in batches (default 2,048)")
    options = parser.parse_args()
    scifact, spec = collection.folder("scifact"), current.read(options.workdir).spec.encoder
    queries = [row["text"] for row in collection.rows(scifact / "queries.jsonl")][:QUERIES]
    rows = collection.rows(scifact / "corpus.jsonl")[: options.documents]
    documents = [f"{row['title']} {row['text']}" for row in rows]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "encoder"
        shutil.copytree(find(spec.model), folder)
        export(folder)
        own = OnnxEncoder(folder, spec, threads=machine.THREADS)
        libraries = Libraries([sys.executable, *map(str, options.peers)], folder, own.max_length)
        print("\n".join(one_by_one(libraries, queries)), end="\n\n", flush=True)
        lines, quick = in_batches(libraries, documents, [len(ids) for ids in own.tokenise(documents)])
        print("\n".join(lines), end="\n\n", flush=True)
    goals = [quick, *commands(options.workdir, options.rounds), *serving(options.workdir, queries, options.rounds)]
    print("\n".join(goal_table(goals, "median and range", ".3g")))
    sys.exit(any(not goal.met for goal in goals if goal.limit is not None))


@dataclass(frozen=True)
class Timed:
    """The packages of an encoder, its seconds of each list of texts, and its vectors of all lists."""

    versions: str
    seconds_R: Values
    vector_NM: Vectors

    def cosine(self, exact: "Timed") -> float:
        return float((self.vector_NM * exact.vector_NM).sum(axis=1).min())


@dataclass(frozen=True)
class Libraries:
    pythons: list[str]
    folder: Path
    length: int

    def timed(self, names: Sequence[str], lists: Sequence[list[str]], threads: int) -> dict[str, Timed]:
        """Encode lists of texts by all encoders that are installed. All encode a list before the next list."""
        with contextlib.ExitStack() as stack:
            asked = {name: process_of(name, self.pythons, self.folder, self.length, threads) for name in names}
            opened = {name: process for name, each in asked.items() if (process := stack.enter_context(each))}
            found = {name: list[tuple[float, Vectors]]() for name in opened}
            for number, texts in enumerate(lists):
                for name in list(opened)[:: -1 if number % 2 else 1]:
                    found[name].append(opened[name].encode(texts))
        return {
            name: Timed(opened[name].versions, np.array(seconds_R), np.concatenate(vectors))
            for name, (seconds_R, vectors) in ((name, zip(*each, strict=True)) for name, each in found.items())
        }


def one_by_one(libraries: Libraries, texts: Sequence[str]) -> list[str]:
    names = [name for name in ENCODERS if name != EMBEDS]
    timed = libraries.timed(names, [[text] for text in texts], threads=1)
    rows = [
        [name, MISSING]
        if (each := timed.get(name)) is None
        else [name, each.versions, f"{1e3 * np.median(each.seconds_R[WARM:]):.2f}", f"{each.cosine(timed[EXACT]):.6f}"]
        for name in names
    ]
    return table(["one query, one thread", "packages", "ms", "cosine, least"], rows)


def in_batches(libraries: Libraries, texts: list[str], tokens: list[int]) -> tuple[list[str], Goal]:
    """Compare each encoder with the fastest library of equal quality that is not rayhier."""
    starts = range(0, len(texts), TURN)
    lists = [texts[:BATCH], *(texts[start : start + TURN] for start in starts)]  # the first list warms up
    timed = libraries.timed(list(ENCODERS), lists, machine.THREADS)
    tokens_R = np.array([sum(tokens[start : start + TURN]) for start in starts])
    rate_R = {name: tokens_R / each.seconds_R[1:] for name, each in timed.items()}
    equal = [name for name in timed if not name.startswith("rayhier") and timed[name].cosine(timed[EXACT]) >= EQUAL]
    fastest = max(equal, key=lambda name: float(np.median(rate_R[name])))
    rows = [
        [name, MISSING]
        if (each := timed.get(name)) is None
        else [
            name,
            each.versions,
            ranged(rate_R[name].tolist()),
            quotient((rate_R[name] / rate_R[fastest]).tolist()),
            f"{each.cosine(timed[EXACT]):.6f}",
        ]
        for name in ENCODERS
    ]
    head = f"{len(texts):,} documents of {np.mean(tokens):.0f} tokens, {machine.THREADS} threads"
    ratio_R = (rate_R[EMBEDS] / rate_R[fastest]).tolist()
    title = f"documents: {EMBEDS}, over {fastest}"
    return (
        table([head, "packages", "tokens a second", "over the fastest equal peer", "cosine, least"], rows),
        Goal(title, float(np.median(ratio_R)), 1.0, "least", quotient(ratio_R)),
    )


def commands(workdir: Path, rounds: int) -> list[Goal]:
    ways = {
        "rayhier search, seconds": ["-m", "rayhier", "search", str(workdir), QUERY],
        "Python: open, seconds": ["-c", OPEN, str(workdir)],
        "Python: open, first search, seconds": ["-c", f"{OPEN}; index.search({QUERY!r})", str(workdir)],
    }
    works = {
        name: partial(subprocess.run, [sys.executable, *arguments], check=True, capture_output=True)
        for name, arguments in ways.items()
    }
    return [goal(name, seconds_R.tolist()) for name, seconds_R in machine.interleaved(works, rounds).items()]


def serving(workdir: Path, texts: list[str], rounds: int) -> list[Goal]:
    """Ask a server by clients that ask again at once. They share its machine."""
    token = workdir / "token"
    token.write_text(TOKEN)
    now = current.read(workdir)
    folder = current.artifact(workdir, now, "model").local("encoder")
    vectors = OnnxEncoder(folder, now.spec.encoder, threads=1).encode(texts)
    bodies = {
        "text": [json.dumps({"query": text, "k": K}).encode() for text in texts],
        "vector": [json.dumps({"vector": vector, "k": K}).encode() for vector in vectors.tolist()],
    }
    found: dict[str, list[float]] = {}
    command = ["rayhier", "serve", str(workdir), "--port", str(PORT), "--token-file", str(token)]
    for _ in range(rounds):
        with served(command, f"http://127.0.0.1:{PORT}/readyz") as ready:
            found.setdefault("serve: seconds until ready", []).append(ready)
            for kind, each in bodies.items():
                at_a_time(PORT, PATH, each[:50], 1)
                for clients in CLIENTS[kind]:
                    load = at_a_time(PORT, PATH, each if clients == 1 else each * TIMES, clients)
                    seen = {
                        "p50, ms": load.ms(0.5),
                        "p99, ms": load.ms(0.99),
                        "answers a second": load.rate,
                        "share refused": len(load.refused()) / len(load.outcomes),
                    }
                    who = f"{kind}, {clients} client{'s' * (clients > 1)}"
                    for name, value in seen.items():
                        found.setdefault(f"{who}: {name}", []).append(value)
            memory = sum(map(machine.pss, machine.below(os.getpid()))) - machine.pss(os.getpid())
            found.setdefault("serve: memory, MB", []).append(memory / 1e6)
    return [goal(title, values) for title, values in found.items()]


def goal(title: str, values: Sequence[float]) -> Goal:
    kind: Literal["least", "most"] = "least" if title.endswith("answers a second") else "most"
    return Goal(title, float(np.median(values)), GOALS.get(title), kind, ranged(values, 0 if min(values) > 50 else 2))


if __name__ == "__main__":
    main()
