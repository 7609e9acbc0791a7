"""Rollbacks while the server folds, packs and is killed: each must publish what its version held, and stay.

One client writes, so it knows the documents after each change. A version made by a fold holds what the client knew at
the version's log number. A packed version holds what the version before it held. Files are written slowly, so that most
rollbacks come while one is written. Each third round begins with so many small files that the first fold, of a delete,
starts a packing. The rollback takes the delete back.
"""

import random
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa

from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.pack import WIDTH as PACKED
from rayhier.index.verify import verify
from rayhier.search.routing.routes import Model
from rayhier.storage import current, schemas
from rayhier.storage.current import Current
from tests.system.history import toy_index
from tests.system.history.server import LEASE_SECONDS, ServerProcess

SLOW = 0.4
"""Seconds that the server takes longer to write a file."""
START_SECONDS, SETTLED_SECONDS = 180.0, 3.0
WIDTH = 40
"""Newest versions of which one is published again."""
Texts = dict[str, str]


@dataclass(frozen=True)
class Rollbacks:
    rounds: int
    seed: int


class Client:
    """A client that knows all documents, and what each version holds."""

    def __init__(self, server: ServerProcess, token: str, seed: int) -> None:
        self._server, self._draw = server, random.Random(f"rollbacks {seed}")
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx2.Client(base_url=server.url, headers=headers, timeout=60.0, trust_env=False)
        self.documents: Texts = toy_index.documents()
        self._at_log: dict[int, list[tuple[int, Texts]]] = {0: [(1, self.documents)]}
        """Documents after each change, as versions from a number on have them: a rollback takes no log number."""
        self._held: dict[int, Texts] = {1: self.documents}
        self._keys: list[tuple[str, int, dict[str, Any]]] = []
        self.wrong: list[str] = []

    def start(self) -> None:
        self._server.start()
        began = time.monotonic()
        while time.monotonic() - began < START_SECONDS and not self._server.ended:
            try:
                self._http.get("/healthz").raise_for_status()
            except httpx2.HTTPError:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError("the server does not start: its output is in its log")

    def write(self) -> None:
        if self._draw.random() < 0.3:
            self.delete(self._draw.sample(sorted(self.documents), 2))
            return
        made = {f"r{self._draw.randrange(60)}": f"oak elm w{secrets.token_hex(4)}" for _ in range(2)}
        rows = [{"id": name, "title": "", "text": text} for name, text in made.items()]
        self._wrote(self._sent("PUT", "documents", {"documents": rows}), self.documents | made)

    def delete(self, names: Sequence[str]) -> None:
        answer = self._sent("DELETE", "documents", {"ids": list(names)})
        self._wrote(answer, {name: text for name, text in self.documents.items() if name not in names})

    def added(self, version: int, documents: Texts) -> None:
        """Learn that a version has further documents, while no server runs."""
        self._held[version] = self.documents = self.documents | documents

    def roll_back(self, number: int | None = None) -> None:
        """Publish an older version again, and send an earlier rollback again."""
        self._learn()
        number = number or self._draw.choice(sorted(self._held)[-WIDTH:])
        key = secrets.token_hex(8)
        answer = self._sent("POST", "versions/rollback", {"version": number}, key)
        self.documents = self._held[answer["version"]] = self._held[number]
        self._at_log[answer["log"]].append((answer["version"], self.documents))
        if answer["documents"] != len(self.documents):
            self.wrong.append(f"rollback to {number}: {answer['documents']} documents, not {len(self.documents)}")
        self._keys.append((key, number, answer))
        key, number, before = self._draw.choice(self._keys)
        if (again := self._sent("POST", "versions/rollback", {"version": number}, key)) != before:
            self.wrong.append(f"rollback {before} sent again was answered {again}")

    def compare(self, when: str) -> None:
        found, after = dict[str, str](), ""
        while after is not None:
            page = self._http.get("/v1/documents", params={"after": after, "limit": 100}).json()
            found |= {row["id"]: row["text"] for row in page["documents"]}
            after = page["next"]
        for name in sorted(found.keys() | self.documents.keys()):
            if found.get(name) != self.documents.get(name):
                version = page["version"], page["log"]
                said = f"{when}, version {version}: {name} is {found.get(name)!r}, not {self.documents.get(name)!r}"
                self.wrong.append(said)
                self.documents = found  # so that one loss is told once
                return

    def settle(self) -> None:
        newest, since = 0, time.monotonic()
        while time.monotonic() - since < SETTLED_SECONDS:
            time.sleep(0.1)
            if (version := self._http.get("/v1/index").json()["version"]) != newest:
                newest, since = version, time.monotonic()

    def close(self) -> None:
        self._http.close()

    def _wrote(self, answer: dict[str, Any], documents: Texts) -> None:
        self.documents = documents
        self._at_log[answer["log"]] = [(1, documents)]

    def _learn(self) -> None:
        """Learn what versions hold that were made since."""
        page = self._http.get("/v1/versions", params={"limit": 100}).json()["versions"]
        for row in reversed(page):
            if row["version"] not in self._held:
                held = self._held.get(row["version"] - 1)
                if row["change"] == "fold":
                    held = [documents for first, documents in self._at_log[row["log"]] if first <= row["version"]][-1]
                if held is not None:  # otherwise more versions followed than a page has
                    self._held[row["version"]] = held

    def _sent(self, method: str, path: str, body: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        headers = {"Idempotency-Key": key or secrets.token_hex(8)}
        while True:
            response = self._http.request(method, f"/v1/{path}", json=body, headers=headers)
            if response.status_code == 200:
                answered: dict[str, Any] = response.json()
                return answered
            if response.status_code != 503:
                raise RuntimeError(f"{method} {path}: {response.status_code} {response.text[:300]}")
            time.sleep(0.05)


def drive(plan: Rollbacks, folder: Path, say: Callable[[str], None]) -> list[str]:
    """Roll back again and again below a folder, which is emptied; returns what was wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    token = secrets.token_hex(8)
    (folder / "token").write_text(token)
    nows = toy_index.make(folder / "work")
    writes = {"fold_documents": 1, "fold_seconds": 1.0}
    server = ServerProcess(folder / "work", folder, {"write_token_file": str(folder / "token"), "writes": writes})
    server.slow.value = SLOW
    client, draw = Client(server, token, plan.seed), random.Random(f"kills {plan.seed}")
    try:
        client.start()
        for number in range(plan.rounds):
            if number % 3 == 0:
                server.kill()
                time.sleep(LEASE_SECONDS)
                last, names = _add_files(folder / "work", nows[0], client)
                client.start()
                client.delete(draw.sample(names, 2))
                time.sleep(0.5 + 2 * draw.random())
                client.roll_back(last)
            else:
                for _ in range(draw.randint(1, 12)):
                    client.write()
                    time.sleep(draw.choice([0.0, 0.0, 0.3]))
                time.sleep(draw.random() * 2 * SLOW)
                client.roll_back()
            client.compare(f"round {number}, at once")
            client.write()
            if draw.random() < 0.2:
                server.kill()
                client.start()
            client.settle()
            client.compare(f"round {number}, settled")
            if (number + 1) % 10 == 0:
                say(f"rollback {number + 1} of {plan.rounds}")
    finally:
        client.close()
        server.close()
    verify(current.artifact(folder / "work", nows[0], "index").root)
    return client.wrong


def _add_files(work: Path, now: Current, client: Client) -> tuple[int, list[str]]:
    """Add documents in so many files that the next fold packs them; returns the last version, and the ids."""
    model, root = Model.of_workdir(work, now), current.artifact(work, now, "index").root
    assign, schema = Assigner(model.router, now.spec, now.artifacts["model"]), schemas.documents({}, passages=False)
    version, names = 0, list[str]()
    for _ in range(PACKED):
        made = {f"f{secrets.token_hex(3)}": "oak fern moss" for _ in range(2)}
        rows = [{"doc_id": name, "title": "", "text": text} for name, text in made.items()]
        batch = pa.Table.from_pylist(rows, schema), model.encode(list(made.values()))
        version = change.add(root, assign, [batch], 50.0).manifest.version
        client.added(version, made)
        names += made
    return version, names
