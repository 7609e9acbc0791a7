"""Changes under Ray Serve while its processes are killed: nothing answered is lost, doubled or not seen."""

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import pytest

from rayhier.index.verify import verify
from rayhier.serve.app import deploy
from rayhier.serve.client import Client
from rayhier.serve.errors import ApiError
from rayhier.serve.http.bodies import WrittenResponse
from rayhier.storage import current
from rayhier.storage.leaf_map import LeafMap

from ..conftest import ray_processes
from .conformance import OPEN, WRITE_TOKEN

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
T = TypeVar("T")
LATE = 2
"""Searches that may lack a group meanwhile: on a busy machine a group that is asked while processes start is late."""
WRITERS, EACH = 4, 10
AGAIN = (0, 503, 504)
"""Statuses after which a change is sent again with its key."""


@pytest.fixture
def url(configured):
    config = configured("ingresses: 2", "writes: {fold_documents: 12}")
    deploy(config)
    return config.url


def test_changes_while_processes_die(url, work):
    with Client(url, WRITE_TOKEN, timeout=120.0) as client:
        size, log = client.index().documents, 0
        _either_ingress_shows_what_was_answered(client)
        size, log = size + 1, client.index().log
        for kind in ("writer", "ingress", "shards-0"):
            told = _written_while_one_dies(url, kind)
            size, log = size + len(told), log + len(told)
            index = _again(client.index)
            assert (index.documents, index.log) == (size, log)
            _all_are_there_once(client, told)
        assert client.index().version > 1
        _again(lambda: client.rollback(1, key="back"))
        assert client.index().documents == size - 3 * WRITERS * EACH - 1
        assert not {result.id for result in client.search(OPEN, 200).results if result.id.startswith("new-")}
    root = current.artifact(work, current.read(work), "index").root
    verify(root)
    assert LeafMap.open(root).manifest.change == "rollback"


def _either_ingress_shows_what_was_answered(client: Client) -> None:
    """Requests one after another, each taken by either of two ingresses."""
    for number in range(30):
        told = client.put([{"id": "new-old", "text": f"{OPEN} {number}"}])
        assert client.document("new-old").text == f"{OPEN} {number}"
        found = client.search(f"{OPEN} {number}", 50)
        assert found.log >= told.log
        assert f"{OPEN} {number}" in {result.text for result in found.results}
    assert len(set(ray_processes(":ingress"))) == 2


def _put(url: str, name: str) -> WrittenResponse:
    with Client(url, WRITE_TOKEN, timeout=120.0) as client:
        return _again(lambda: client.put([{"id": name, "text": f"{OPEN} {name}"}], key=f"key-{name}"))


def _again(call: Callable[[], T]) -> T:
    """What a call answers; it is made again while the server says that this helps."""
    while True:
        try:
            return call()
        except ApiError as error:
            if error.status not in AGAIN and error.code != "http":  # Serve's own, where an ingress died
                raise
        threading.Event().wait(0.2)


def _written_while_one_dies(url: str, kind: str) -> dict[str, int]:
    """Writes by several clients, in the middle of which a process dies; id and number of each change."""
    told, enough, over = dict[str, int](), threading.Event(), threading.Event()

    def write(writer: int) -> None:
        for number in range(EACH):
            name = f"new-{kind}-{writer}-{number}"
            told[name] = _put(url, name).log
            if len(told) >= WRITERS * EACH // 4:
                enough.set()

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        searches = pool.submit(_searched, url, over)
        writes = [pool.submit(write, writer) for writer in range(WRITERS)]
        assert enough.wait(120)
        os.kill(next(ray_processes(f":{kind}")), signal.SIGKILL)
        wait(writes)
        over.set()
        failed, late, lost = searches.result()
        _raised(writes)
    if kind == "writer":
        assert failed == []
        assert late <= LATE, lost
        assert "writer" in lost
    return told


def _raised(futures: list[Future[None]]) -> None:
    for future in futures:
        future.result()


def _searched(url: str, over: threading.Event) -> tuple[list[str], int, set[str]]:
    """Searches until it is over: what failed, how often a group of shards was late, and who was not ready meanwhile."""
    failed, late, lost = list[str](), 0, set[str]()
    with Client(url, WRITE_TOKEN, timeout=60.0, retries=0) as client:
        while not over.wait(0.05):
            try:
                late += client.search(OPEN, 20).partial
                with urllib.request.urlopen(f"{url}/readyz", timeout=30) as answer:
                    lost |= set(json.load(answer)["lost"])
            except (ApiError, OSError) as error:
                body = error.read() if isinstance(error, urllib.error.HTTPError) else b""
                if body.startswith(b'{"ready"'):  # groups that do not answer in time
                    late += 1
                    lost |= set(json.loads(body)["lost"])
                else:
                    failed.append(repr(error))
    return failed, late, lost


def _all_are_there_once(client: Client, told: dict[str, int]) -> None:
    assert len(set(told.values())) == len(told)
    listed, after = list[str](), None
    while True:
        page = _again(lambda after=after: client.documents(after, 100))  # type: ignore[misc]
        listed += [document.id for document in page.documents]
        after = page.next
        if after is None:
            break
    assert [name for name in listed if name in told] == sorted(told)
