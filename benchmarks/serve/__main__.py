"""Measure a served index under load, and write results/serve.md: `make bench NAME=serve`.

Every measurement has a baseline in the same run, on one machine. Load comes over loopback, and is limited in number and
time.
"""

import benchmarks.serve.haproxy  # noqa: F401  first of all

# isort: split

import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
import yaml
from ray import serve
from ray.serve.scripts import cli
from ray.util import list_named_actors

from benchmarks.collection import BUILT, ROOT, place, run
from benchmarks.commands import Options
from benchmarks.pages import prose
from benchmarks.serve import goals
from benchmarks.serve.goals import ASKED, PATH, K, Results, paired, same
from benchmarks.serve.load import TOKEN, Check, Load, a_second, at_a_time
from benchmarks.tables import Goal
from rayhier.arrays import Floats
from rayhier.search.request.hits import Answer
from rayhier.search.snapshot import Snapshot
from rayhier.serve.client import Client
from rayhier.serve.config import HA_PROXY

PORT = 8123
LOGICAL = 8
"""CPUs that Ray is told of, whatever the machine has."""
CLIENTS, ROUNDS = 32, 5
"""Clients of a busy server, and paired rounds of each comparison."""
WITHIN = {"vector": 0.0, "query": 1e-5}
"""How far apart scores, served and offline, are the same: those of texts, in float32."""
GROUP = "shards-0"
"""The shard group whose replicas are killed."""
PROXY = "SERVE_PROXY_ACTOR"
"""Part of the name of Serve's actor that starts the proxy of a node."""


def main() -> int:
    """Deploy, measure, write the page and print it; the exit code is 1 where a goal was not met."""
    parser = Options("Measure a served index under load.", "serve", "docs")
    parser.add_argument("--collection", default="scifact")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of overload (default 60)")
    given = parser.parse_args()
    workdir = given.workdir
    run(place(given.collection, workdir), stages=BUILT)
    # Logical CPUs for all applications at once; those that are not asked rest.
    ray.init(address="local", num_cpus=LOGICAL, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    searcher, texts = goals.asked(workdir)
    texts = (texts * 4)[:1000]
    vectors = searcher.model.encode(texts).numpy
    proxy = "HAProxy" if os.environ.get(HA_PROXY) == "1" else "Serve's own proxy, in Python"
    about = prose("serve/preface.md", cores=len(os.sched_getaffinity(0)), proxy=proxy)
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text(TOKEN)
        _deploy(workdir, token)
        try:
            return goals.ended(measure(searcher, texts, vectors, given.seconds), given.docs, "serve.md", about)
        finally:
            serve.shutdown()


def _deploy(workdir: Path, token: Path) -> None:
    """Deploy what applications.yaml names."""
    text = Path(__file__).with_name("applications.yaml").read_text()
    config = yaml.safe_load(text.replace("WORKDIR", str(workdir)).replace("TOKEN_FILE", str(token)))
    (shipped,) = yaml.safe_load((ROOT / "jobs" / "serve.yaml").read_text())["applications"]
    for one in config["applications"]:
        one |= {"route_prefix": f"/{one['name']}", "runtime_env": shipped["runtime_env"]}
    file = token.with_name("serve.yaml")
    file.write_text(json.dumps(config))
    cli.main(["run", "--non-blocking", str(file)], standalone_mode=False)
    while any(one.status != "RUNNING" for one in serve.status().applications.values()):
        time.sleep(0.5)


def measure(searcher: Snapshot, texts: list[str], vectors: Floats, seconds: float) -> Iterator[Goal]:
    """All goals, in their order."""
    by_text, by_vector = (
        [json.dumps({key: one, "k": K}).encode() for one in questions]
        for key, questions in (("query", texts), ("vector", vectors.tolist()))
    )
    yield from equal(searcher, texts, vectors)
    for name in ("together", "twice", "busy", "pair", "alone", "bare", "encoder"):  # warm
        _load(name, by_vector[:50] if name == "bare" else by_text[:50], 4)
    kinds = (("vectors", by_vector, "bare", 1.6), ("texts", by_text, "encoder", 1.3))
    for kind, bodies, control, limit in kinds:
        ask = partial(_load, bodies=bodies[:ASKED], clients=1)
        title = f"{kind}, one client: median latency / that of a bare application"
        yield paired(title, ask, ("together", control), ROUNDS, limit, late=True)
    asked = partial(_load, bodies=by_text[: 3 * ASKED], clients=CLIENTS)
    title = f"texts, {CLIENTS} clients: answers per second / those of queries one by one"
    yield paired(title, asked, ("busy", "alone"), ROUNDS, 2.0)
    for name in ("alone", "bare", "encoder"):  # what rests takes time of these few cores, too
        serve.delete(name)
    # Of the same server, which here refuses nothing.
    capacity = float(np.median([_load("busy", by_text[: ASKED * 2], CLIENTS).rate for _ in range(3)]))
    before = _memory("together")
    yield from goals.overload(PORT, f"/together{PATH}", by_text, capacity, seconds)
    yield Goal("overload: growth of all replicas' memory", _memory("together") / before - 1, 0.1, "most")
    yield from killed(by_text, [partial(_right, _offline(answer)) for answer in searcher.search(texts, 2 * K)])


def _load(name: str, bodies: Sequence[bytes], clients: int) -> Load:
    return at_a_time(PORT, f"/{name}{PATH}", bodies, clients)


def equal(searcher: Snapshot, texts: list[str], vectors: Floats) -> Iterator[Goal]:
    """Shares of a thousand questions that are answered as offline search does, alone and in batches."""
    beam = searcher.model.spec.search.leaves_visited(len(searcher.manifest.counts), searcher.manifest.rows)
    kinds: dict[str, tuple[str, Sequence[Any], list[Answer]]] = {
        "vectors": ("vector", list(vectors), searcher.search(vectors, 2 * K, beam)),
        "texts": ("query", texts, searcher.search(texts, 2 * K)),
    }
    client = Client(f"http://127.0.0.1:{PORT}/together", TOKEN, timeout=60)
    for name, (key, questions, offline) in kinds.items():
        alone = [client.search(question, k=K) for question in questions]
        batches = [questions[start : start + 50] for start in range(0, len(questions), 50)]
        batched = [answer for batch in batches for answer in client.search_batch(batch, k=K).answers]
        for mode, served in (("alone", alone), ("in batches", batched)):
            right = [
                same([(hit.id, hit.score) for hit in answer.results], _offline(wanted), K, WITHIN[key])
                for answer, wanted in zip(served, offline, strict=True)
            ]
            yield Goal(f"1,000 {name} {mode}: share answered as offline", float(np.mean(right)), 1.0)


def _offline(answer: Answer) -> Results:
    return [(hit.id, hit.score) for hit in answer.hits]


def _right(offline: Results, answer: dict[str, Any]) -> bool:
    return same([(hit["id"], hit["score"]) for hit in answer["results"]], offline, K, WITHIN["query"])


def _memory(name: str) -> float:
    """Bytes of all replicas of an application."""
    found = 0.0
    for entry in Path("/proc").iterdir():
        try:
            title = (entry / "cmdline").read_bytes().decode(errors="replace")
            if entry.name.isdigit() and f"ServeReplica:{name}:" in title:
                found += int((entry / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue  # the process has ended
    return found


def killed(bodies: list[bytes], checks: list[Check]) -> Iterator[Goal]:
    """A replica of a shard group with two is killed at half of the capacity, then that of a group with one.

    Both servers wait instead of refusing: what is lost counts, though a replica that starts takes the cores of all.
    """
    found, _, healthy, seen = _shot("twice", bodies, checks)
    whole = [one.whole for one in found.outcomes]
    title = f"one of two replicas killed at half of the capacity: share of {len(whole):,} requests whole and right"
    yield Goal(title, goals.share(whole), 0.999, "least", seen)
    yield Goal("the same: seconds until Serve calls both healthy", healthy, 30.0, "most")
    for strict in (False, True):
        own = [json.dumps(json.loads(body) | {"strict": strict}).encode() for body in bodies]
        found, shot, _, seen = _shot("busy", own, checks)
        bad = [one for one in found.outcomes if not one.whole]
        last = max((one.sent + one.seconds for one in bad), default=0.0) - shot
        happened = last > 0  # else the kill hit no request
        name = "one replica alone" + (", `strict` requests" if strict else "")
        said = "answered the documented 503" if strict else "partial, and name the group"
        title = f"{name}, killed at half of the capacity: share of {len(bad)} requests not whole that are {said}"
        right = [one.unavailable("shards_lost") if strict else one.status == 200 and GROUP in one.lost for one in bad]
        yield Goal(title, goals.share(right) if happened else None, 1.0, "least", seen)
        yield Goal("the same: seconds until answers are whole again", last if happened else None, 30.0, "most")
    kills = {
        "one of two ingresses": ("pair", _ingress("pair")),
        "a sole ingress": ("busy", _ingress("busy")),
        "the proxy": ("busy", PROXY),
    }
    for what, (name, victim) in kills.items():
        found, shot, _, seen = _shot(name, bodies, checks, victim)
        lost = [one for one in found.outcomes if not one.whole]
        slow = [one.seconds for one in found.outcomes if one.whole and one.sent + one.seconds > shot]
        title = f"{what} killed at half of the capacity: share of {len(found.outcomes):,} requests whole and right"
        yield Goal(title, 1 - len(lost) / len(found.outcomes), None, seen=seen)
        last = max((one.sent + one.seconds - shot for one in lost), default=0.0)
        yield Goal("the same: seconds until the last request that was lost", last, None)
        yield Goal("the same: seconds of the slowest answer after the kill", max(slow, default=0.0), None)


def _ingress(application: str) -> str:
    return f"{application}#ingress#"


def _shot(name: str, bodies: list[bytes], checks: list[Check], victim: str = "") -> tuple[Load, float, float, str]:
    """Forty seconds of load at half of an application's capacity, of which an actor is killed after five.

    The first actor whose name holds `victim` is killed, by default a replica of the shard group. Returns what came of
    it, when the actor was killed, the seconds until Serve had replaced it, and what was seen.
    """
    victim = victim or f"{name}#{GROUP}#"
    rate = 0.5 * _load(name, bodies[: ASKED * 2], CLIENTS).rate
    times: list[float] = []

    def shoot() -> None:
        time.sleep(5.0)
        before = _actors(victim)
        ray.kill(ray.get_actor(before[0], namespace="serve"))
        times.append(time.perf_counter())
        while not _replaced(name, victim, before):
            time.sleep(0.2)
        times.append(time.perf_counter())

    thread = threading.Thread(target=shoot)
    thread.start()
    found = a_second(PORT, f"/{name}{PATH}", bodies, rate, 40.0, checks)
    thread.join()
    return found, times[0], times[1] - times[0], goals.seen(found, rate)


def _actors(named: str) -> list[str]:
    """Names of Serve's actors whose name holds `named`."""
    return sorted(one["name"] for one in list_named_actors(all_namespaces=True) if named in one["name"])


def _replaced(name: str, victim: str, before: list[str]) -> bool:
    """Return True if the first of some actors has been replaced, and the application runs, by Serve's own word."""
    if PROXY in victim:
        return len(_actors(victim)) == len(before)
    now, deployments = _actors(victim), serve.status().applications[name].deployments
    healthy = all(deployment.status == "HEALTHY" for deployment in deployments.values())
    return before[0] not in now and len(now) == len(before) and healthy


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", PORT))
    sys.exit(main())
