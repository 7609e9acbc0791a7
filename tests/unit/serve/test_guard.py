"""What a request may take of the server: a slot once its body is there, and so much time."""

import asyncio
from dataclasses import replace
from unittest.mock import Mock

import pytest

from rayhier.search.snapshot import Seen
from rayhier.serve.args import RequestLimits
from rayhier.serve.errors import overloaded
from rayhier.serve.http.guard import Guard
from rayhier.serve.http.tokens import Tokens

from .sockets import HEAD, SCOPE, chunks, connected, listening, status
from .stand_ins import Canned, CannedWriter, app_of
from .virtual_time import run

RUN = run

WHOLE = {"type": "http.request", "body": b"{}", "more_body": False}


async def whole():
    return WHOLE


class Sent(list):
    """What was sent to a client."""

    async def __call__(self, message):
        self.append(message)

    @property
    def statuses(self):
        return [message["status"] for message in self if "status" in message]


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


SEARCH = HEAD + b'Content-Length: 16\r\n\r\n{"query": "oak"}'


def answers(port):
    """Whether a search is answered now."""
    with connected(port, SEARCH) as one:
        return status(one) == 200


async def hang(scope, receive, send):
    await asyncio.Event().wait()


def test_sockets_that_stall_after_a_byte():
    with listening(app_of(Canned(), RequestLimits(max_requests=2, body_seconds=60))) as port:
        slow = [connected(port, HEAD + b"Content-Length: 17\r\n\r\n{") for _ in range(64)]
        assert answers(port)
        for each in slow:
            each.close()


async def test_a_request_has_a_deadline_and_leaves_its_slot():
    """The deadline counts from the first byte of the body."""
    guard, sent = Guard(hang, Tokens(None), RequestLimits(max_requests=1, seconds=0.01)), Sent()
    await guard(SCOPE, whole, sent)
    await guard(SCOPE, chunks(b"{")[0], sent)
    assert b'"code":"timeout"' in sent[1]["body"]
    guard.app = answer
    await guard(SCOPE, whole, sent)
    assert sent.statuses == [504, 504, 200]


async def test_a_body_is_passed_on_only_if_all_of_it_came_and_it_is_admitted():
    receive, messages = chunks(b"{")
    messages.append({"type": "http.disconnect"})
    sent, admission = Sent(), Mock(check=Mock(side_effect=overloaded("too much")))
    guard = Guard(lambda *_: pytest.fail("passed on"), Tokens(None), RequestLimits(), admission)
    await guard(SCOPE, receive, sent)
    assert sent == []
    await guard(SCOPE, whole, sent)
    assert sent.statuses == [503]


async def test_work_for_a_client_that_left_is_cancelled():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def works(scope, receive, send):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def receive():
        if begun.is_set():
            return {"type": "http.disconnect"}
        return WHOLE

    guard, sent = Guard(works, Tokens(None), RequestLimits(max_requests=1)), Sent()
    await guard(SCOPE, receive, sent)
    assert ended.is_set()
    guard.app = answer
    await guard(SCOPE, whole, sent)
    assert sent.statuses == [200]


def peer(name, **others):
    return {**SCOPE, "client": (name, 1), **others}


async def test_one_peer_takes_no_more_than_its_share_of_the_slots():
    async def waits(scope, receive, send):
        if scope["path"] != "/healthz":
            await leave.wait()
        await answer(scope, receive, send)

    leave = asyncio.Event()
    guard, sent = Guard(waits, Tokens(None), RequestLimits(max_requests=4, peer_share=0.5)), Sent()
    working = []
    for names in ("aaa", "bb"):
        working += [asyncio.create_task(guard(peer(name), whole, sent)) for name in names]
        await asyncio.sleep(0.01)
        assert sent.statuses == [503]
    assert (b"retry-after", b"1") in sent[0]["headers"]
    await guard(peer("c"), whole, sent)
    await guard(peer("c", path="/healthz"), whole, sent)
    assert sent.statuses == [503, 503, 200]
    leave.set()
    await asyncio.gather(*working)
    assert sent.statuses[3:] == [200] * 4
    assert guard._working.held == 0


async def test_large_answers_that_nobody_reads_are_limited():
    """A request keeps its slot until its answer is read; large answers together have a limit, small ones have none."""

    async def sized(scope, receive, send):
        headers = [(b"content-length", b"%d" % scope["size"])]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * scope["size"]})

    async def slow(message):
        if message["type"] == "http.response.body":
            await read.wait()

    read, sent = asyncio.Event(), Sent()
    guard = Guard(sized, Tokens(None), RequestLimits(max_unsent_bytes=300_000, peer_share=1))
    waiting = [asyncio.create_task(guard(peer("a", size=100_000), whole, slow)) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert (guard._working.held, guard._unsent.held) == (3, 300_000)
    for size in (100_000, 1_000):
        await guard(peer("b", size=size), whole, sent)
    read.set()
    await asyncio.gather(*waiting)
    await guard(peer("b", size=100_000), whole, sent)
    assert (sent.statuses, guard._working.held, guard._unsent.held) == ([503, 200, 200], 0, 0)


def test_who_waits_for_a_change_holds_no_slot_and_is_woken_by_it():
    class Changing(Canned):
        """An engine that sees the next change when it is searched."""

        event = asyncio.Event()

        async def changed(self):
            await self.event.wait()

        async def search(self, request):
            self.view = replace(self.view, seen=Seen("0123456789ab", 4, 1))
            self.event.set()
            return await super().search(request)

    app = app_of(Changing(), RequestLimits(max_requests=1, seconds=20), writer=CannedWriter())
    waits = b"GET /v1/documents?min_log=1 HTTP/1.1\r\nHost: h\r\n\r\n"
    with listening(app) as port, connected(port, waits) as one:
        with connected(port, waits) as two:
            assert status(two) == 503  # those that wait have a limit too
        assert answers(port)
        assert status(one) == 200


def test_a_body_to_a_path_without_a_token_is_not_received():
    with listening(app_of(Canned(), RequestLimits(max_arriving_bytes=50))) as port:
        for path in ("/", "/page/main.js", "/healthz", "/readyz"):
            head = f"GET {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 90\r\n\r\n".encode()
            with connected(port, head + b"x" * 40) as one, connected(port, head + b"x" * 40):
                assert answers(port)
                said = one.recv(65_536)
                assert said.startswith(b"HTTP/1.1 200")
                assert b"connection: close" in said.lower()


async def test_answers_are_neither_kept_nor_guessed_and_nothing_is_a_web_socket():
    guard, sent, closed = Guard(answer, Tokens(None), RequestLimits()), Sent(), Sent()
    await guard(SCOPE, whole, sent)
    assert dict(sent[0]["headers"]) == {b"x-content-type-options": b"nosniff", b"cache-control": b"no-store"}
    await guard({**SCOPE, "type": "websocket"}, whole, closed)
    assert [message["type"] for message in closed] == ["websocket.close"]


async def test_a_body_with_another_transfer_coding_is_refused():
    sent = Sent()
    for coding in (b"gzip, chunked", b"identity", b"chunked, chunked"):
        await Guard(answer, Tokens(None), RequestLimits())(
            peer("a", headers=[(b"transfer-encoding", coding)]), whole, sent
        )
    assert sent.statuses == [415] * 3
    assert (b"connection", b"close") in sent[0]["headers"]
