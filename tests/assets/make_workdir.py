"""Make the workdir of a release, with the code of the release: `python make_workdir.py FOLDER`.

The empty FOLDER gets generated texts, a tiny encoder, a spec, `work`, and `results.json`: what the release finds.
Documents are added and deleted from the shell. A server folds one change, and is killed with four changes in its log.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

import rayhier

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
evaluate: {measures: [nDCG@10, R@10], baselines: [exact], lists: 8}
cluster: {address: local}
"""
WORDS = [f"{tree}{part}" for tree in ("oak", "elm", "fern", "moss") for part in ("", "leaf", "root", "tree", "wood")]
TEXTS = [" ".join([*(WORDS[(n * step + n // 20) % 20] for step in range(1, 6)), f"first{n}"]) for n in range(64)]
QUERIES = ["heron", "oakleaf folded", "another fernwood", "elmroot mosstree", "first31", "fern oak elmtree"]
TOKEN = "written-by-the-asset"


def build(base: Path) -> None:
    os.chdir(base)
    rows = [{"id": f"d{n}", "text": text, "year": 1990 + n % 30} for n, text in enumerate(TEXTS)]
    write(Path("documents.jsonl"), rows[:60])
    write(Path("added.jsonl"), rows[60:])
    write(Path("queries.jsonl"), ({"id": f"q{n}", "text": " ".join(TEXTS[n].split()[1:4])} for n in range(40)))
    Path("train.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(30)))
    Path("test.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(30, 40)))
    Path("spec.yaml").write_text(SPEC)
    tiny_bert(Path("encoder"))
    command("run", "spec.yaml")
    command("index", "add", "work", "added.jsonl")
    command("index", "delete", "work", "d3", "d60")
    folded = {"id": "d4", "text": "an oakleaf folded", "fields": {"year": 2020}}
    serve("writes.fold_seconds=0.1", [("PUT", {"documents": [folded]})], version=4)
    tail = [
        {"id": "new1", "text": "the heron in the log", "fields": {"year": 2021}},
        {"id": "d5", "text": "a heron in place of d5", "fields": {"year": 2022}},
        {"id": "new2", "text": "another fernwood"},
    ]
    puts = [("PUT", {"documents": [document]}) for document in tail]
    serve("writes.fold_seconds=1e6", [*puts, ("DELETE", {"ids": ["d6"]})], version=4)
    with rayhier.open("work") as index:
        found = [
            {
                "query": query,
                "mode": mode,
                "hits": [[hit.id, round(hit.score, 5)] for hit in index.search(query, mode=mode)],
            }
            for query in QUERIES
            for mode in ("dense", "bm25", "hybrid")
        ]
        Path("results.json").write_text(json.dumps({"documents": len(index), "found": found}, indent=1) + "\n")
    Path("token").unlink()
    for folder in (*Path("work").glob("index/*/*/pins"), *Path("work").glob("evaluate/*/*/plots")):
        shutil.rmtree(folder)
    for signed in (*Path("work").glob("*/*/*/owner.json"), *Path("work").glob("index/*/*/log/writer*/*")):
        signed.write_text(signed.read_text().replace(f'"{socket.gethostname()}"', '"a-host"'))


def write(path: Path, rows: Iterable[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def tiny_bert(folder: Path) -> None:
    """Save a BERT of one layer and 32 dimensions with random weights, in sentence-transformers' layout."""
    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *WORDS]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=64, **shape)).save_pretrained(folder)
    modules = [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))


def command(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "rayhier", *arguments], check=True)


def serve(setting: str, changes: list[tuple[str, object]], version: int) -> None:
    """Send changes to a server, wait until it serves a version, and kill it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    Path("token").write_text(TOKEN)
    Path("token").chmod(0o600)
    options = ["--port", str(port), "--set", setting, "--write-token-file", "token"]
    server = subprocess.Popen([sys.executable, "-m", "rayhier", "serve", "work", *options], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        server.stdout.readline()

        def ask(method: str, path: str, body: object = None, key: str = "none") -> dict[str, Any]:
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", "Idempotency-Key": key}
            sent = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", sent, headers, method=method)
            with urllib.request.urlopen(request, timeout=60) as answer:
                told: dict[str, Any] = json.load(answer)
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
