"""Clients change and read an index whose server is killed and whose disk fails; every operation goes to a file.

The seed decides what is sent and after how many operations something fails; how requests interleave, it does not.
checker.py tells the form of the file.
"""

import asyncio
import itertools
import json
import random
import secrets
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import quote

import httpx2

from benchmarks.commands import clock
from rayhier.index.carry_changes import carry_changes
from rayhier.index.verify import verify
from rayhier.search.routing.routes import Model
from rayhier.spec import InputError
from rayhier.storage import current, leaf_map
from rayhier.storage.artifact import Artifact
from rayhier.storage.change_log import LOG
from rayhier.storage.current import Current
from tests.system.history.checker import Report, check
from tests.system.history.server import LEASE_SECONDS, Refusal, ServerProcess
from tests.toys import tiny_bert
from tests.unit.serve.conftest import INDEX, MODEL, OTHER_INDEX, OTHER_MODEL, TEXTS, WORDS, make_published

OK, GONE, BUSY = 200, 404, 503
START_SECONDS, AGAIN_SECONDS = 180.0, 120.0
"""Most seconds until a started server answers, and until one writes again once its disk does."""
REQUEST_SECONDS = 60.0
"""Seconds after which a client gives a request up: more than the server takes by its own limit."""
SERVER_SECONDS, SHARD_SECONDS = 20.0, 10.0
"""`limits.seconds` and `shard_seconds` of the server."""
DOCUMENTS = {f"d{n}": text for n, text in enumerate(TEXTS)}
"""Texts of the documents at the start."""
NAMES = [*DOCUMENTS, *(f"n{n}" for n in range(180)), "ä/ö ?#", "<b>", "😀"]
"""Ids that clients write and delete."""
QUESTIONS = [" ".join(WORDS[n % 20 : n % 20 + 2 + n % 3]) for n in range(0, 36, 3)]
READS = {"get": 24, "list": 10, "word": 12, "words": 8, "dense": 9, "hybrid": 8, "index": 2}
"""How often clients read, by kind, in a hundred operations; the others are changes."""
PUTS = 0.7
"""Share of changes that write documents; others delete some."""
LATE = 90_000
"""Most changes after which a client sends one again: the server remembers the keys of the newest hundred thousand."""
STALE_CLIENTS, STALE_SECONDS = 3, 2.0
"""Clients that write to a Writer that was paused, and the seconds for which they do."""
ALL_LEAVES = 1_000
"""A beam of all leaves, however many were split."""
TREES, SEASON, SEASONAL = ("oak", "elm", "fern", "moss"), 60, 0.8
"""Texts that a client writes until it prefers another tree's words, and their share: leaves of a few words grow."""
Record = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    operations: int
    kills: int
    swaps: int
    failovers: int
    seed: int
    clients: int = 8
    fold_documents: int = 400
    fold_seconds: float = 15.0


Death = Literal["kill", "kill twice"]
Sleep = Literal["pause", "fail over", "fail back"]
Swap = Literal["swap", "swap and kill", "swap and pause", "swap and fail over"]
Kind = Refusal | Death | Sleep | Swap


@dataclass(frozen=True)
class Fault:
    after: int
    kind: Kind


def faults(plan: Plan) -> list[Fault]:
    """Draw the faults of a plan: of ten kills one comes during a start.

    The disk fails too, the server is paused, another server takes over, and models are swapped. During three of four
    swaps a kill, a pause or another server comes. The first server sometimes takes over again.
    """
    draw, kinds = random.Random(f"faults {plan.seed}"), list[Kind]()
    for number in range(plan.kills):
        kinds.append("kill twice" if number % 10 == 7 else "kill")
        if number % 5 == 1:
            kinds.append(get_args(Refusal)[number // 5 % 3])
        if number % 10 == 4:
            kinds.append("pause")
    kinds += ["fail back" if number % 2 else "fail over" for number in range(plan.failovers)]
    kinds += [get_args(Swap)[number % 4] for number in range(plan.swaps)]
    draw.shuffle(kinds)
    places = sorted(draw.randint(plan.operations // 50, plan.operations * 97 // 100) for _ in kinds)
    return [Fault(place, kind) for place, kind in zip(places, kinds, strict=True)]


class Log:
    """The file of events and operations."""

    def __init__(self, path: Path) -> None:
        self.path, self.operations = path, 0
        self._file = path.open("w")

    def event(self, name: str, **more: Any) -> None:
        self.write({"event": name, "time": time.monotonic(), **more})

    def write(self, record: Record) -> None:
        self.operations += "kind" in record
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()


@dataclass
class Shared:
    url: str
    token: str
    log: Log
    up: asyncio.Event
    newest: int = 0
    """Largest log number of an answer."""
    model: str = ""
    """Model of the last answer of `GET /v1/index`."""
    words: list[str] = field(default_factory=lambda: list(WORDS))
    """Words that one text has."""
    ends: bool = False


class Client:
    """A client that sends one request at a time, mostly, and never again by itself."""

    def __init__(self, number: int, seed: int, shared: Shared, url: str | None = None) -> None:
        self._number, self._shared, self._url = number, shared, url
        self._draw = random.Random(f"client {seed} {number}")
        headers = {"Authorization": f"Bearer {shared.token}", "Content-Type": "application/json"}
        limits = httpx2.Limits(max_connections=4)
        self._http = httpx2.AsyncClient(headers=headers, timeout=REQUEST_SECONDS, limits=limits, trust_env=False)
        self._count, self._written = itertools.count(), 0
        self._answered = list[tuple[int, tuple[str, Record, str]]]()
        """Changes with keys, with the newest log number at the time."""
        self._lost = list[tuple[str, Record, str]]()
        """Changes of which no answer says whether they were made."""

    async def run(self) -> None:
        while not self._shared.ends:
            (kind,) = self._draw.choices([*READS, "change"], [*READS.values(), 100 - sum(READS.values())])
            if kind == "change":
                await self._change()
            else:
                await self._read(kind)

    async def write_until(self, end: float) -> None:
        """Send changes, and some of them again, until a time."""
        while time.monotonic() < end:
            status = await self.change(*self._made(), sends=self._draw.choice([1, 1, 2]))
            await asyncio.sleep(0.0 if status == OK else 0.05)

    async def change(self, kind: str, sent: Record, sends: int = 1, at_once: int = 1) -> int:
        """Send a change with a key, so often and over so many connections; returns a status of the last."""
        key = f"{self._number}-{secrets.token_hex(6)}"
        for _ in range(sends):
            status, *_ = await asyncio.gather(*(self.send(kind, sent, key) for _ in range(at_once)))
        if status == OK:
            self._answered.append((self._shared.newest, (kind, sent, key)))
        elif status != GONE:
            self._lost.append((kind, sent, key))
        return status

    async def settle(self) -> None:
        """Send changes again whose answers were lost, until each is answered."""
        self._url, began = None, time.monotonic()
        for change in self._lost:
            while await self.send(*change) not in (OK, GONE):
                await asyncio.sleep(0.05)
                if time.monotonic() - began > AGAIN_SECONDS:
                    raise RuntimeError(f"no answer to a change within {AGAIN_SECONDS:g} s; see server-*.log")
        self._lost.clear()

    async def close(self) -> None:
        await self._http.aclose()

    async def _read(self, kind: str) -> None:
        asked, sent = self._question(kind)
        if asked != "index" and self._draw.random() < 0.1:
            sent = sent | {"min_log": self._shared.newest}
        for _ in range(2 if self._draw.random() < 0.06 else 1):
            await self.send(asked, sent)

    def _question(self, kind: str) -> tuple[str, Record]:
        draw = self._draw
        match kind:
            case "get":
                return "get", {"id": draw.choice(NAMES)}
            case "list":
                return "list", {"after": draw.choice(["", *NAMES]), "limit": draw.choice([5, 20, 60])}
            case "index":
                return "index", {}
            case "word":
                return "search", {"query": draw.choice(self._shared.words), "mode": "bm25", "k": 10}
            case "words":
                query = " ".join(draw.sample(WORDS, draw.choice([1, 2])))
                return "search", {"query": query, "mode": "bm25", "k": draw.choice([5, 400])}
        sent = {"query": draw.choice(QUESTIONS), "mode": kind, "k": draw.choice([5, 10])}
        if kind == "dense" and draw.random() < 0.5:
            sent["beam"] = ALL_LEAVES
        return "search", sent

    async def _change(self) -> None:
        draw = self._draw
        if draw.random() < 0.03:
            self._answered = [(newest, sent) for newest, sent in self._answered if newest + LATE > self._shared.newest]
            if self._answered:
                await self.send(*draw.choice(self._answered)[1])
                return
        kind, sent = self._made()
        status = await self.change(kind, sent, at_once=2 if draw.random() < 0.05 else 1)
        if status == OK:
            if draw.random() < 0.05:
                await self.send(*self._answered[-1][1])
            if draw.random() < 0.03:
                await self.send(*self._made(), self._answered[-1][1][2])  # refused: the key belongs to another body
        elif status != GONE:
            if draw.random() < 0.7:
                await self.send(*self._lost[-1])
            for name in sent["ids"] if kind == "delete" else [name for name, _ in sent["documents"]]:
                await self.send("get", {"id": name})
            if status == BUSY:
                await asyncio.sleep(0.02)

    def _made(self) -> tuple[str, Record]:
        draw = self._draw
        names = draw.sample(NAMES, draw.choice([1, 1, 1, 2, 3]))
        if draw.random() > PUTS:
            return "delete", {"ids": names[:2]}
        documents = []
        for name in names:
            self._written += 1
            word = f"w{self._number}x{self._written}"
            documents.append([name, " ".join([*self._words(draw.randint(1, 5)), word])])
            self._shared.words = [*self._shared.words[-300:], word]
        return "put", {"documents": documents}

    def _words(self, count: int) -> list[str]:
        tree = TREES[self._written // SEASON % len(TREES)]
        seasonal = self._draw.random() < SEASONAL
        return self._draw.choices([word for word in WORDS if tree in word or not seasonal], k=count)

    async def send(self, kind: str, sent: Record, key: str | None = None) -> int:
        """Send a request once and note what came of it; returns the status, 0 where the connection was cut."""
        while True:
            if self._url is None:
                await self._shared.up.wait()
            url = self._url or self._shared.url
            request = self._request(url, kind, sent, key)
            number, start, answer, error = next(self._count), time.monotonic(), None, None
            try:
                response = await self._http.send(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                await asyncio.sleep(0.01)
                continue  # nothing was sent
            except httpx2.HTTPError:
                status = 0
            else:
                status = response.status_code
                body = response.json() if response.content else {}
                answer, error = (_essence(kind, body), None) if status == OK else (None, body.get("error"))
            break
        if answer is not None:
            self._shared.newest = max(self._shared.newest, answer["log"])
            self._shared.model = answer["model"] if kind == "index" else self._shared.model
        self._shared.log.write(
            {"client": self._number, "number": number, "kind": kind, "start": start, "end": time.monotonic()}
            | {"sent": sent, "key": key, "status": status, "answer": answer, "error": error, "server": url}
        )
        return status

    def _request(self, server: str, kind: str, sent: Record, key: str | None) -> httpx2.Request:
        content: Record = {}
        match kind:
            case "put":
                rows = [{"id": name, "title": "", "text": text} for name, text in sent["documents"]]
                method, path, content = "PUT", "documents", {"json": {"documents": rows}}
            case "delete":
                method, path, content = "DELETE", "documents", {"json": sent}
            case "get":
                method, path = "GET", f"documents/{quote(sent['id'], safe='')}"
                content = {"params": {name: value for name, value in sent.items() if name == "min_log"}}
            case "list":
                method, path, content = "GET", "documents", {"params": sent}
            case "search":
                method, path, content = "POST", "search", {"json": sent}
            case _:
                method, path = "GET", "index"
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._http.build_request(method, f"{server}/v1/{path}", headers=headers, **content)


def _essence(kind: str, body: Record) -> Record:
    kept = {name: body[name] for name in ("model", "version", "log")}
    match kind:
        case "put" | "delete":
            return kept | {"count": body["documents"], "replaced": body["replaced"]}
        case "get":
            return kept | {"documents": [[body["id"], body["text"]]]}
        case "list":
            return kept | {"documents": [[row["id"], row["text"]] for row in body["documents"]], "next": body["next"]}
        case "search":
            results = [[row["id"], row["text"], round(row["score"], 6)] for row in body["results"]]
            return kept | {"results": results, "partial": body["partial"]}
    return kept | {"count": body["documents"]}


class Workdir:
    """Two models of random weights and their indexes, the first of which `current.json` names."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._nows = folder, list[Current]()
        for seed, names in enumerate(((MODEL, INDEX), (OTHER_MODEL, OTHER_INDEX))):
            encoder = tiny_bert(folder / f"encoder-{seed}", WORDS, seed)
            self._nows.append(current.read(make_published(folder, encoder, *names, router_type="learned_ivf")))
        current.write(folder, self._nows[0])

    @property
    def models(self) -> list[str]:
        return [now.artifacts["model"] for now in self._nows]

    @property
    def roots(self) -> list[Path]:
        return [Path(str(self._index(now).root)) for now in self._nows]

    def carry(self) -> None:
        """Carry changes to the other index as `rayhier run` does, once no server writes there any more."""
        named, other = self._nows
        model, until = Model.of_workdir(self._folder, other), time.monotonic() + AGAIN_SECONDS
        while True:
            try:
                carry_changes(self._index(named), self._index(other), model)
                return
            except InputError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def name_other(self) -> None:
        named, other = self._nows
        self._nows = [other, named]
        current.write(self._folder, other.model_copy(update={"before": named.artifacts["index"]}))

    def _index(self, now: Current) -> Artifact:
        return current.artifact(self._folder, now, "index")


class Trouble:
    """Kills and pauses the server, makes its disk refuse, and swaps its model, index and Writer."""

    def __init__(self, servers: list[ServerProcess], work: Workdir, client: Client, shared: Shared, plan: Plan) -> None:
        self._servers, self._work, self._client, self._shared = servers, work, client, shared
        self._plan, self._stale = plan, itertools.count(plan.clients + 1)
        self._log, self._draw = shared.log, random.Random(f"trouble {plan.seed}")
        self.kills = 0

    @property
    def _server(self) -> ServerProcess:
        return self._servers[0]

    @property
    def ended(self) -> bool:
        return self._server.ended

    async def start(self) -> None:
        """Start the server and let clients know once it answers."""
        self._server.start()
        began = time.monotonic()
        async with httpx2.AsyncClient(trust_env=False) as http:
            while True:
                try:
                    if (await http.get(f"{self._server.url}/healthz")).status_code == OK:
                        break
                except httpx2.HTTPError:
                    await asyncio.sleep(0.01)
                if self._server.ended and self._server.met_swap:
                    self._log.event("started again")
                    self._server.start()
                if self._server.ended or time.monotonic() - began > START_SECONDS:
                    raise RuntimeError("the server does not start: its output is in server-*.log")
        self._log.event("started")
        self._shared.url = self._server.url
        self._shared.up.set()

    def kill(self) -> None:
        """Kill the server: requests on their way are cut, clients wait for the next start."""
        self._shared.up.clear()
        self._server.kill()
        self.kills += 1
        self._log.event("killed")

    async def __call__(self, kind: Kind) -> None:
        """Let something fail, and mend it."""
        await asyncio.sleep(self._draw.random() * 0.2)
        match kind:
            case "kill":
                if self._draw.random() < 0.5:
                    await self._appended()
                await self._restart()
            case "kill twice":
                self.kill()
                self._server.start()
                await asyncio.sleep(self._draw.random() * 1.5)
                await self._restart()
            case "short" | "full" | "fsync":
                await self._refuse(kind)
            case "pause":
                await self._pause()
            case "fail over" | "fail back":
                await self._fail_over(back=kind == "fail back")
            case "swap" | "swap and kill":
                await self._swap(kills=kind == "swap and kill")
            case "swap and pause":
                await asyncio.gather(self._swap(kills=False), self._late(self._pause))
            case "swap and fail over":
                await asyncio.gather(self._swap(kills=False), self._late(partial(self._fail_over, back=False)))

    async def _restart(self) -> None:
        self.kill()
        await self.start()

    async def _appended(self) -> None:
        """Wait until a change becomes durable, whose answer a kill then cuts, but not for long."""
        singles = [int(path.stem) for path in (self._work.roots[0] / LOG).glob("*.change") if path.stem.isdecimal()]
        path = self._work.roots[0] / LOG / f"{max(singles, default=self._shared.newest) + 1:012d}.change"
        began = time.monotonic()
        while not path.exists() and time.monotonic() - began < 1:
            await asyncio.sleep(0)

    async def _refuse(self, how: Refusal) -> None:
        """Let the disk refuse until the server has said so, and some more; then it must write again."""
        self._log.event("refuses", how=how)
        self._server.refuse(how)
        await self._until(lambda status: status == BUSY)
        for _ in range(self._draw.randint(1, 20)):
            await self._probe()
        if self._draw.random() < 0.3:
            self.kill()
        self._server.accept()
        self._log.event("accepts")
        if not self._shared.up.is_set():
            await self.start()
        await self._until(lambda status: status == OK)

    async def _late(self, fault: Callable[[], Awaitable[None]]) -> None:
        """Let something fail a moment later: while changes are carried, or once the server may look."""
        await asyncio.sleep(2.5 * self._draw.random() ** 2)
        await fault()

    async def _pause(self) -> None:
        self._server.pause()
        await asyncio.sleep(LEASE_SECONDS + self._draw.random())
        self._server.resume()
        self._log.event("paused")

    async def _fail_over(self, *, back: bool) -> None:
        """Pause the Writer until another server writes; then clients write to both, and one of the two is killed."""
        paused = self._server
        paused.pause()
        await asyncio.sleep(LEASE_SECONDS + 0.2)
        self._shared.up.clear()
        self._servers.reverse()
        await self.start()
        await asyncio.sleep(0.5 + 2 * self._draw.random())
        stale = [Client(next(self._stale), self._plan.seed, self._shared, paused.url) for _ in range(STALE_CLIENTS)]
        end = time.monotonic() + STALE_SECONDS
        writing = [asyncio.create_task(client.write_until(end)) for client in stale]
        await asyncio.sleep(0.1)  # some changes wait for the paused server
        paused.resume()
        await asyncio.gather(*writing)
        self._log.event("fail back" if back else "fail over")
        if back:
            self.kill()
            self._servers.reverse()
            await self._until(lambda status: status == OK, client=stale[0])
            self._shared.url = paused.url
            self._shared.up.set()
        else:
            paused.kill()
        for client in stale:
            await client.settle()
            await client.close()

    async def _until(self, good: Callable[[int], bool], client: Client | None = None) -> None:
        """Write a document again and again until the status is good."""
        began = time.monotonic()
        while not good(await self._probe(client)):
            await asyncio.sleep(0.02)
            if time.monotonic() - began > AGAIN_SECONDS:
                raise RuntimeError(f"no such answer to a change within {AGAIN_SECONDS:g} s; see server-*.log")

    async def _swap(self, *, kills: bool) -> None:
        """Name the other model and index; a kill comes while changes are carried, or once the server may look."""
        carrying = asyncio.create_task(asyncio.to_thread(self._work.carry))
        early = kills and self._draw.random() < 0.3
        if early:
            await asyncio.sleep(self._draw.random() * 0.3)
            await self._restart()
        await carrying
        self._log.event("swap", model=self._work.models[1])
        self._work.name_other()
        if kills and not early:
            await asyncio.sleep(self._draw.random() * 2.5)
            await self._restart()
        began = time.monotonic()
        while self._shared.model != self._work.models[0]:
            if time.monotonic() - began > AGAIN_SECONDS:
                raise RuntimeError(f"model {self._work.models[0]} is not served in time; see server-*.log")
            await self._client.send("index", {})
            await asyncio.sleep(0.05)

    async def _probe(self, client: Client | None = None) -> int:
        sent = {"documents": [["probe", f"probe w{secrets.token_hex(5)}"]]}
        return await (client or self._client).change("put", sent)


def checked(plan: Plan, folder: Path) -> Report:
    """Drive a history, and check it."""
    report = clock()
    with drive(plan, folder, lambda text: report(f"seed {plan.seed}: {text}")).open() as lines:
        return check(lines)


def drive(plan: Plan, folder: Path, say: Callable[[str], None]) -> Path:
    """Do what a plan says below a folder, which is emptied; returns the file of operations."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    token = secrets.token_hex(8)
    (folder / "token").write_text(token)
    args = {
        "write_token_file": str(folder / "token"),
        "shard_groups": 3,
        "shard_seconds": SHARD_SECONDS,
        "reranker_seconds": SHARD_SECONDS,
        "limits": {"queue_seconds": SERVER_SECONDS, "seconds": SERVER_SECONDS},
        "writes": {"fold_documents": plan.fold_documents, "fold_seconds": plan.fold_seconds},
    }
    servers = [ServerProcess(folder / "work", folder, args, f"server-{number}") for number in range(2)]
    log = Log(folder / "history.jsonl")
    workdir = Workdir(folder / "work")
    log.event("begin", seed=plan.seed, model=workdir.models[0], documents=DOCUMENTS)
    say(f"{plan.operations:,} operations, {plan.kills} kills, {plan.swaps} swaps, {plan.failovers} other Writers")
    try:
        asyncio.run(_drive(plan, servers, workdir, Shared(servers[0].url, token, log, asyncio.Event()), say))
        for root in workdir.roots:
            for made in leaf_map.newest_first(root, None, sys.maxsize):
                log.event("version", model=made.model, number=made.version, change=made.change)
    finally:
        for server in servers:
            server.kill()
        log.close()
    for root in workdir.roots:
        verify(root)
    return log.path


async def _drive(
    plan: Plan, servers: list[ServerProcess], work: Workdir, shared: Shared, say: Callable[[str], None]
) -> None:
    clients = [Client(number, plan.seed, shared) for number in range(plan.clients + 1)]
    async with AsyncExitStack() as closing:
        for client in clients:
            closing.push_async_callback(client.close)
        trouble = Trouble(servers, work, clients[-1], shared, plan)
        await trouble.start()
        said = 0

        async def until(operations: int) -> None:
            nonlocal said
            while shared.log.operations < operations:
                if trouble.ended:
                    raise RuntimeError("the server ended by itself: its output is in server-*.log")
                if shared.log.operations * 10 // plan.operations > said:
                    said += 1
                    say(f"{shared.log.operations:,} operations, {trouble.kills} kills, log {shared.newest}")
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            for client in clients[:-1]:
                group.create_task(client.run())
            for fault in faults(plan):
                await until(fault.after)
                await trouble(fault.kind)
            await until(plan.operations)
            shared.ends = True
        trouble.kill()
        await trouble.start()
        await asyncio.gather(*(client.settle() for client in clients))
        await _read_all(clients[-1])


async def _read_all(client: Client) -> None:
    """Read what is left, each question twice."""
    for _ in range(2):
        await client.send("index", {})
        for name in ["", *sorted(NAMES, key=str.encode)[19::20]]:
            await client.send("list", {"after": name, "limit": 20})
        await client.send("list", {"after": "", "limit": 1_000})
        for mode in ("dense", "bm25", "hybrid"):
            for query in QUESTIONS:
                await client.send("search", {"query": query, "mode": mode, "k": 10})
