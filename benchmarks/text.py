"""What a text query costs: encoding by several libraries, the shell's search, and a server.

`python -m benchmarks.text WORKDIR` measures with the published encoder of a workdir, such as the quickstart's, and with
SciFact's test queries. Encoders take turns text by text, on one thread. A server has its default threads.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from benchmarks import collection, machine
from benchmarks.commands import Options, absolute, served
from benchmarks.serve.goals import PATH, K
from benchmarks.serve.load import TOKEN, at_a_time
from benchmarks.tables import ranged, table
from rayhier.embed.encode import TextEncoder
from rayhier.embed.onnx import OnnxEncoder
from rayhier.storage import current

PORT, CLIENTS, TEXTS = 8133, 16, 300
PRECISIONS = ("float32", "bfloat16")
OPENS = """import rayhier, sys
with rayhier.open(sys.argv[1]) as index:
    index.search("which sorting algorithm is stable")
"""


def main() -> None:
    parser = Options("Milliseconds of a text query: encoded, searched from the shell, and served.")
    parser.add_argument("workdir", type=absolute, help="workdir of a published index")
    parser.add_argument("--rounds", type=int, default=3, help="of commands and of a server (default 3)")
    options = parser.parse_args()
    rows = collection.rows(collection.folder("scifact") / "queries.jsonl")
    texts = [row["text"] for row in rows[:TEXTS]]
    print("\n".join(table(["one text, one thread", "ms", "cosine, least"], encoded(options.workdir, texts))))
    print()
    print("\n".join(table(["a user waits", "seconds"], commands(options.workdir, options.rounds))))
    print()
    print("\n".join(table(["rayhier serve", ""], served_rows(options.workdir, texts, options.rounds))))


def encoded(workdir: Path, texts: list[str]) -> list[list[str]]:
    now = current.read(workdir)
    folder, spec = current.artifact(workdir, now, "model").local("encoder"), now.spec.encoder
    torch.set_num_threads(1)
    by_torch = {name: TextEncoder(folder, spec.model_copy(update={"precision": name})) for name in PRECISIONS}
    theirs = SentenceTransformer(str(folder), device="cpu")
    ways: dict[str, Callable[[list[str]], Any]] = {
        "rayhier: ONNX Runtime, float32": OnnxEncoder(folder, spec, threads=1).encode,
        "rayhier: torch, float32": by_torch["float32"].encode,
        "rayhier: torch, bfloat16": by_torch["bfloat16"].encode,
        "sentence-transformers: torch, float32": partial(theirs.encode, show_progress_bar=False),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    vectors: dict[str, list[np.ndarray]] = {name: [] for name in ways}
    for number, text in enumerate(texts):
        for name, encode in ways.items():
            began = time.perf_counter()
            (vector,) = encode([text])
            if number >= len(texts) // 10:  # the first ones warm up
                taken[name].append(1e3 * (time.perf_counter() - began))
            vectors[name].append(vector)
    right = np.stack(vectors["rayhier: torch, float32"])
    least = {name: float((np.stack(each) * right).sum(axis=1).min()) for name, each in vectors.items()}
    return [[name, f"{np.median(taken[name]):.2f}", f"{least[name]:.6f}"] for name in ways]


def commands(workdir: Path, rounds: int) -> list[list[str]]:
    ways = {
        "rayhier search, one query": ["-m", "rayhier", "search", str(workdir), "which sorting algorithm is stable"],
        "Python: open, search": ["-c", OPENS, str(workdir)],
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, arguments in ways.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - began)
    return [[name, ranged(taken[1:], 2)] for name, taken in seconds.items()]


def served_rows(workdir: Path, texts: list[str], rounds: int) -> list[list[str]]:
    token = workdir / "token"
    token.write_text(TOKEN)
    vectors = OnnxEncoder(
        current.artifact(workdir, current.read(workdir), "model").local("encoder"),
        current.read(workdir).spec.encoder,
        threads=1,
    ).encode(texts)
    bodies = {
        "text": [json.dumps({"query": text, "k": K}).encode() for text in texts],
        "vector": [json.dumps({"vector": vector, "k": K}).encode() for vector in vectors.tolist()],
    }
    found: dict[str, list[float]] = {}
    command = ["rayhier", "serve", str(workdir), "--port", str(PORT), "--token-file", str(token)]
    for _ in range(rounds):
        with served(command, f"http://127.0.0.1:{PORT}/readyz") as ready:
            found.setdefault("seconds until ready", []).append(ready)
            for kind, each in bodies.items():
                at_a_time(PORT, PATH, each[:50], 1)
                alone = at_a_time(PORT, PATH, each, 1)
                found.setdefault(f"{kind}, one client: p50, ms", []).append(alone.ms(0.5))
                many = at_a_time(PORT, PATH, each * 3, CLIENTS)
                found.setdefault(f"{kind}, {CLIENTS} clients: a second", []).append(many.rate)
                refused = len(many.refused()) / len(many.outcomes)
                found.setdefault(f"{kind}, {CLIENTS} clients: share refused", []).append(refused)
            memory = sum(map(machine.pss, machine.below(os.getpid()))) - machine.pss(os.getpid())
            found.setdefault("memory, MB", []).append(memory / 1e6)
    return [[name, ranged(values, 0 if min(values) > 50 else 2)] for name, values in found.items()]


if __name__ == "__main__":
    main()
