"""Make `workdir-0.2.0` in an empty folder: `python make_workdir_0_2_0.py FOLDER`. It runs at commit 706caab4 only.

The folder gets 60 documents, 40 queries, a tiny encoder, a spec, and `work`. A trained head, an addition and a deletion
make three versions of the index. A server wrote version 4, and was killed before it folded its last four changes.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from benchmarks.history.toy_index import documents, tiny_bert

from rayhier.__main__ import main
from tests.integration.in_process import make

SPEC = """name: asset
workdir: work
corpus:
  type: jsonl
  documents: documents.jsonl
  queries: queries.jsonl
  judgements: {train: train.tsv, test: test.tsv}
  fields: {year: int}
encoder: {model: encoder, train: head, max_length: 32, precision: float32}
router: {type: learned_ivf, branching: 8}
train: {epochs: 2, batch_size: 8}
index: {shards: 2}
search: {k: 10, beam: 4}
evaluate: {measures: [nDCG@10, R@10], lists: 8}
"""


TOKEN = "written-by-the-asset"


def build(folder: Path) -> None:
    """Run every stage, then change the index as its users do."""
    os.chdir(folder)
    texts = list(documents().values())
    rows = [{"id": f"d{n}", "text": text, "year": 1990 + n % 30} for n, text in enumerate(texts)]
    write(Path("documents.jsonl"), rows[:60])
    write(Path("added.jsonl"), rows[60:64])
    write(Path("queries.jsonl"), [{"id": f"q{n}", "text": " ".join(texts[n].split()[1:4])} for n in range(40)])
    Path("train.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(30)))
    Path("test.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(30, 40)))
    Path("token").write_text(TOKEN)
    Path("spec.yaml").write_text(SPEC)
    tiny_bert(Path("encoder"), 0)
    make(Path("spec.yaml"))
    assert main(["index", "add", "work", "added.jsonl"]) == 0
    assert main(["index", "delete", "work", "d3", "d60"]) == 0
    folded = {"id": "d4", "text": "an oakleaf folded", "fields": {"year": 2020}}
    serve("writes.fold_seconds=0.1", [("PUT", {"documents": [folded]})], version=4)
    tail = [
        {"id": "new1", "text": "the heron in the log", "fields": {"year": 2021}},
        {"id": "d5", "text": "a heron in place of d5", "fields": {"year": 2022}},
        {"id": "new2", "text": "another fernwood"},
    ]
    puts = [("PUT", {"documents": [document]}) for document in tail]
    serve("writes.fold_seconds=1e6", [*puts, ("DELETE", {"ids": ["d6"]})], version=4)
    for plots in Path("work/evaluate").glob("*/*/plots"):
        shutil.rmtree(plots)


def write(path: Path, rows: list[dict[str, object]]) -> None:
    """Write rows as lines of JSON."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def serve(setting: str, changes: list[tuple[str, object]], version: int) -> None:
    """Send changes to a server, wait until it serves a version, and kill it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "rayhier", "serve", "work", "--port", str(port), "--set", setting]
    server = subprocess.Popen([*command, "--write-token-file", "token"], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        server.stdout.readline()

        def ask(method: str, path: str, body: object = None, key: str = "none") -> dict[str, int]:
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", "Idempotency-Key": key}
            sent = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", sent, headers, method=method)
            with urllib.request.urlopen(request, timeout=60) as answer:
                told: dict[str, int] = json.load(answer)
                return told

        for number, (method, body) in enumerate(changes):
            ask(method, "/v1/documents", body, f"{setting}-{number}")
        for _ in range(600):
            if ask("GET", "/v1/index")["version"] == version:
                return
            time.sleep(0.1)
        raise SystemExit(f"version {version} is not served")
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
