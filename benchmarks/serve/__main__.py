"""A served index under load: `make bench-serve`. One run, one machine, everything beside its control.

Load comes from this machine's loopback alone, bounded in number and time. Prints a table and writes docs/serve.md.
"""

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import ray
import yaml
from ray import serve
from ray.serve.scripts import cli
from ray.util import list_named_actors

from benchmarks.collection import ROOT, RUNS, place, run
from benchmarks.serve.load import TOKEN, Check, Load, a_second, at_a_time
from benchmarks.tables import table
from rayhier.arrays import Floats
from rayhier.search.answer import Hit
from rayhier.search.searcher import Searcher
from rayhier.serve.version import Version
from rayhier.storage import columns, current

PREFACE = Path(__file__).parent / "preface.md"
PORT = 8123
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
LOGICAL = 8
"""CPUs that Ray is told of, whatever the machine has."""
CLIENTS, ROUNDS, ASKED = 32, 5, 200
"""Clients of a busy server, paired rounds of each comparison, and requests of a round."""
OVERLOAD_SECONDS = 60.0
HEALTH_SECONDS = 0.05
"""Seconds between two looks at the server's health."""


@dataclass(frozen=True)
class Goal:
    """What was asked, what came out, the limit, whether that is `least` or `most`, and what else was seen."""

    title: str
    value: float
    limit: float
    kind: Literal["least", "most"]
    seen: str = ""

    def row(self) -> list[str]:
        """A line of the table."""
        met = self.value >= self.limit if self.kind == "least" else self.value <= self.limit
        return [
            self.title,
            f"{self.value:.3g}",
            f"at {self.kind} {self.limit:g}",
            "met" if met else "MISSED",
            self.seen,
        ]


def main() -> int:
    """Deploy, measure, write the page and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description="A served index under load.")
    parser.add_argument("--workdir", type=Path, default=RUNS / "serve")
    parser.add_argument("--collection", default="scifact")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--seconds", type=float, default=OVERLOAD_SECONDS, help="of overload (default 60)")
    given = parser.parse_args()
    workdir = given.workdir.absolute()
    overrides = place(given.collection, workdir)
    run(overrides, *(part for stage in ("corpus", "embed", "train", "index") for part in ("--stage", stage)))
    # Logical CPUs for all applications at once; those that are not asked rest.
    ray.init(address="local", num_cpus=LOGICAL, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    searcher = Searcher.open(workdir)
    searcher.model = Version.newest(str(workdir))[0].model("float32").load()  # in which a server encodes queries
    texts = _texts(workdir)
    vectors = searcher.model.encode(texts).numpy
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text(TOKEN)
        _deploy(workdir, token)
        try:
            goals = []
            for goal in measure(searcher, texts, vectors, given.seconds):
                print(*goal.row(), sep="  ", file=sys.stderr, flush=True)
                goals.append(goal)
        finally:
            serve.shutdown()
    page = "\n".join(
        [PREFACE.read_text(), "", *table(["", "value", "limit", "", "seen"], [goal.row() for goal in goals]), ""]
    )
    (given.docs / "serve.md").write_text(page)
    print(page)
    return 0


def _texts(workdir: Path) -> list[str]:
    corpus = current.artifact(workdir, current.read(workdir), "corpus")
    texts: list[str] = columns.read([corpus.path("queries.parquet")], ["text"])["text"].to_pylist()
    return (texts * 4)[:1000]


def _deploy(workdir: Path, token: Path) -> None:
    """Deploy the index: as shipped, with two replicas, with and without batches but no refusals; two bare ones."""
    index, bare = "rayhier.serve.app:build", "benchmarks.serve.bare:build"
    own = {"workdir": str(workdir), "token_file": str(token)}
    patient = {"limits": {"queue_seconds": 60}}
    applications = {
        "together": (index, own),
        "twice": (index, own),
        "busy": (index, own | patient),
        "alone": (index, own | patient | {"together": 1}),
        "bare": (bare, {"workdir": None}),
        "encoder": (bare, {"workdir": str(workdir)}),
    }
    (shipped,) = yaml.safe_load((ROOT / "jobs" / "serve.yaml").read_text())["applications"]
    twice = [{"name": f"shards-{number}", "num_replicas": 2} for number in range(2)]
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": PORT},
        "applications": [
            {
                "name": name,
                "route_prefix": f"/{name}",
                "import_path": path,
                "args": args,
                "runtime_env": shipped["runtime_env"],
                "deployments": twice if name == "twice" else [],
            }
            for name, (path, args) in applications.items()
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "serve.yaml"
        file.write_text(json.dumps(config))
        cli.main(["run", "--non-blocking", str(file)], standalone_mode=False)
    while any(one.status != "RUNNING" for one in serve.status().applications.values()):
        time.sleep(0.5)


def _bodies(questions: object, key: str) -> list[bytes]:
    return [json.dumps({key: one, "k": 10}).encode() for one in questions]  # type: ignore[attr-defined]


def paired(
    ask: Callable[[str], Load], ours: str, theirs: str, value: Callable[[Load], float]
) -> tuple[float, float, float]:
    """Medians over paired rounds, the order changing: of our value over theirs, of ours, of theirs."""
    rounds = []
    for number in range(ROUNDS):
        both = {name: value(ask(name)) for name in ((ours, theirs) if number % 2 else (theirs, ours))}
        rounds.append((both[ours] / both[theirs], both[ours], both[theirs]))
    ratio, own, other = np.median(rounds, axis=0).tolist()
    return ratio, own, other


def measure(searcher: Searcher, texts: list[str], vectors: Floats, seconds: float) -> Iterator[Goal]:
    """All goals, in their order."""
    by_text, by_vector = _bodies(texts, "query"), _bodies(vectors.tolist(), "vector")
    yield from equal(searcher, texts, vectors)
    for name in ("together", "twice", "busy", "alone", "bare", "encoder"):  # warm
        _load(name, by_vector[:50] if name == "bare" else by_text[:50], 4)
    for kind, bodies, control in (("vectors", by_vector, "bare"), ("texts", by_text, "encoder")):
        ask = partial(_load, bodies=bodies[:ASKED], clients=1)
        title = f"{kind}, one client: median latency over bare" + ("" if control == "bare" else " with the encoder")
        ratio, own, other = paired(ask, "together", control, _median)
        yield Goal(title, ratio, 1.3, "most", f"{own:.1f} ms, {other:.1f} ms")
    asked = partial(_load, bodies=by_text[: 3 * ASKED], clients=CLIENTS)
    title = f"texts, {CLIENTS} clients: answers a second over those of questions asked one by one"
    ratio, own, other = paired(asked, "busy", "alone", _rate)
    yield Goal(title, ratio, 2.0, "least", f"{own:.0f} a second, {other:.0f} a second")
    yield from overload(by_text, seconds)
    yield from killed(by_text, [partial(_right, hits.hits) for hits in searcher.search(texts, 10)])
    yield from hostile()


def _load(name: str, bodies: Sequence[bytes], clients: int) -> Load:
    return at_a_time(PORT, f"/{name}/v1/search", bodies, clients)


def _median(found: Load) -> float:
    return found.ms(0.5)


def _rate(found: Load) -> float:
    return found.rate


def equal(searcher: Searcher, texts: list[str], vectors: Floats) -> Iterator[Goal]:
    """Shares of a thousand questions that are answered as offline search does, alone and in batches."""
    search = searcher.model.spec.search
    beam = search.leaves_visited(len(searcher.manifest.counts), searcher.manifest.rows)
    kinds = {
        "vectors": ("vector", vectors.tolist(), searcher.search_vectors(vectors, 10, beam)),
        "texts": ("query", texts, searcher.search(texts, 10)),
    }
    for name, (key, questions, offline) in kinds.items():
        within = 1e-6 if key == "vector" else 1e-5
        alone = [json.loads(body) for body in _answers("/together/v1/search", _bodies(questions, key))]
        plural = {"vector": "vectors", "query": "queries"}[key]
        batched = []
        for start in range(0, len(questions), 50):
            asked = json.dumps({plural: questions[start : start + 50], "k": 10}).encode()
            batched += json.loads(_answers("/together/v1/search:batch", [asked])[0])["answers"]
        for how, served in (("alone", alone), ("in batches", batched)):
            same = [
                np.allclose(
                    [one["score"] for one in answer["results"]], [hit.score for hit in wanted.hits], atol=within
                )
                and _order_holds(answer["results"], wanted.hits, within)
                for answer, wanted in zip(served, offline, strict=True)
            ]
            yield Goal(f"1,000 {name} {how}: share answered as offline", float(np.mean(same)), 1.0, "least")


def _right(hits: Sequence[Hit], answer: dict[str, Any]) -> bool:
    """Whether an answer's scores are those of offline search."""
    return np.allclose([one["score"] for one in answer["results"]], [hit.score for hit in hits], atol=1e-5)


def _order_holds(results: list[dict[str, object]], hits: object, within: float) -> bool:
    """Whether ids are equal but where scores are tied."""
    scores = [hit.score for hit in hits]  # type: ignore[attr-defined]
    return all(
        one["id"] == hit.id
        or sum(abs(other - hit.score) <= 2 * within for other in scores) > 1
        or place == len(scores) - 1
        for place, (one, hit) in enumerate(zip(results, hits, strict=True))  # type: ignore[call-overload]
    )


def _answers(path: str, bodies: list[bytes]) -> list[bytes]:
    """Answers of the bodies in their order, by one client."""
    found = []
    for body in bodies:
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", body, HEADERS)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found.append(answer.read())
    return found


def overload(bodies: list[bytes], seconds: float) -> Iterator[Goal]:
    """Three times as many questions a second as the server answers, for a minute."""
    path = "/together/v1/search"
    unloaded = at_a_time(PORT, path, bodies[:ASKED], 1)
    capacity = float(np.median([at_a_time(PORT, path, bodies[: ASKED * 2], CLIENTS).rate for _ in range(3)]))
    before = _memory("together")
    found = a_second(PORT, path, bodies, 3 * capacity, seconds)
    sent = [one for one in found.refused() if one.seconds > 0]
    documented = [one.status == 503 and one.retry for one in sent]
    yield Goal(
        f"overload, {3 * capacity:.0f} questions a second: share of refusals that are the documented 503",
        float(np.mean(documented)) if sent else 1.0,
        1.0,
        "least",
        f"{len(sent):,} refused, {len(found.answered()):,} answered of {len(found.outcomes):,}",
    )
    yield Goal("overload: median milliseconds of a refusal", found.ms(0.5, sent) if sent else 0.0, 50.0, "most")
    late, idle = found.ms(0.99), unloaded.ms(0.99)
    title = "overload: 99% of answers, over those of an idle server"
    yield Goal(title, late / idle, 3.0, "most", f"{late:.0f} ms, {idle:.0f} ms")
    seen = f"{found.rate:.0f} a second, {capacity:.0f} a second"
    yield Goal("overload: answers a second over capacity", found.rate / capacity, 0.5, "least", seen)
    yield Goal("overload: growth of the ingress' memory", _memory("together") / before - 1, 0.1, "most")


def _memory(name: str) -> float:
    """Bytes of the ingress replica of an application."""
    found = 0.0
    for entry in Path("/proc").iterdir():
        try:
            title = (entry / "cmdline").read_bytes().decode(errors="replace")
            if entry.name.isdigit() and f"ServeReplica:{name}:ingress" in title:
                pages = int((entry / "statm").read_text().split()[1])
                found += pages * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue  # the process has ended
    return found


def killed(bodies: list[bytes], checks: list[Check]) -> Iterator[Goal]:
    """A replica of a shard group with two is killed at half of the capacity, then that of a group with one."""
    found, _, healthy = _shot("twice", bodies, checks)
    whole = [one.whole for one in found.outcomes]
    title = f"one of two replicas killed at half of the capacity: share of {len(whole):,} requests whole and right"
    yield Goal(title, float(np.mean(whole)), 0.999, "least", _statuses(found))
    yield Goal("the same: seconds until Serve calls both healthy", healthy, 30.0, "most")
    for strict in (False, True):
        own = [json.dumps(json.loads(body) | {"strict": strict}).encode() for body in bodies]
        found, shot, _ = _shot("together", own, checks)
        bad = [one for one in found.outcomes if not one.whole]
        status = 503 if strict else 200
        name = "one replica alone" + (", asked `strict`" if strict else "")
        said = "answered 503" if strict else "partial, and say so"
        title = f"{name}, killed at half of the capacity: share of {len(bad)} requests not whole that are {said}"
        right = len([one for one in bad if one.status == status]) / max(1, len(bad))
        yield Goal(title, right, 1.0, "least", _statuses(found))
        last = max((one.sent + one.seconds for one in bad), default=shot)
        yield Goal("the same: seconds until answers are whole again", last - shot, 30.0, "most")


def _statuses(found: Load) -> str:
    """How many requests got which status; 0: no answer."""
    counts = Counter(one.status for one in found.outcomes)
    return ", ".join(f"{status}: {count:,}" for status, count in sorted(counts.items()))


def _shot(name: str, bodies: list[bytes], checks: list[Check]) -> tuple[Load, float, float]:
    """Forty seconds of load at half of an application's capacity, of which a replica is killed after five.

    Returns what came of it, when the replica was killed, and the seconds until Serve had replaced it.
    """
    path = f"/{name}/v1/search"
    capacity = at_a_time(PORT, path, bodies[: ASKED * 2], CLIENTS).rate
    times: list[float] = []

    def shoot() -> None:
        time.sleep(5.0)
        before = _replicas(name)
        ray.kill(ray.get_actor(before[0], namespace="serve"))
        times.append(time.perf_counter())
        while not _replaced(name, before):
            time.sleep(0.2)
        times.append(time.perf_counter())

    thread = threading.Thread(target=shoot)
    thread.start()
    found = a_second(PORT, path, bodies, 0.5 * capacity, 40.0, checks)
    thread.join()
    return found, times[0], times[1] - times[0]


def _replicas(name: str) -> list[str]:
    """Names of the actors of an application's first shard group."""
    actors = list_named_actors(all_namespaces=True)
    return sorted(one["name"] for one in actors if f"{name}#shards-0#" in one["name"])


def _replaced(name: str, before: list[str]) -> bool:
    """Whether the first of some replicas has been replaced, by Serve's own word."""
    now, deployment = _replicas(name), serve.status().applications[name].deployments["shards-0"]
    return before[0] not in now and len(now) == len(before) and deployment.status == "HEALTHY"


def hostile() -> Iterator[Goal]:
    """Bodies of a million values, one after the other, while the server's health is asked for all the time."""
    path = f"http://127.0.0.1:{PORT}/together"
    slowest, health = 0.0, list[float]()
    with _watched(health):
        for kind in ("[]", '""', "1"):
            for key in ("queries", "vectors", "query", "vector"):
                body = (f'{{"{key}": [' + ",".join([kind] * 1_000_000))[:3_900_000].rstrip(",") + "]}"
                request = urllib.request.Request(f"{path}/v1/search", body.encode(), HEADERS)
                began = time.perf_counter()
                try:
                    urllib.request.urlopen(request, timeout=60).close()
                except urllib.error.HTTPError as error:
                    error.close()
                slowest = max(slowest, time.perf_counter() - began)
    yield Goal("bodies of up to a million values: slowest answer, seconds", slowest, 1.0, "most")
    yield Goal("the same: slowest /healthz meanwhile, milliseconds", 1e3 * max(health), 250.0, "most")


@contextmanager
def _watched(health: list[float]) -> Iterator[None]:
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(HEALTH_SECONDS):
            began = time.perf_counter()
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/together/healthz", timeout=60):
                health.append(time.perf_counter() - began)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", PORT))
    sys.exit(main())
