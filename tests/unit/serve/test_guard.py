"""What a request may take of the server: a slot once its body is there, and so much time."""

import asyncio
import logging
import math

import pytest

from rayhier.serve.args import RequestLimits
from rayhier.serve.backend.admission import Admission
from rayhier.serve.errors import overloaded
from rayhier.serve.http.guard import Guard
from rayhier.serve.http.tokens import Tokens
from rayhier.serve.metrics import Metrics

from .sockets import HEAD, SCOPE, chunks, connected, listening, status
from .stand_ins import Canned, Noting, app_of
from .virtual_time import run

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


def test_who_sends_slowly_takes_no_slot():
    async def main():
        guard, sent = Guard(answer, Tokens(None), RequestLimits(max_requests=1)), Sent()
        slow = [chunks(b"{") for _ in range(64)]
        waiting = [asyncio.create_task(guard(SCOPE, receive, Sent())) for receive, _ in slow]
        while any(left for _, left in slow):
            await asyncio.sleep(0)
        await guard(SCOPE, whole, sent)
        assert sent.statuses == [200]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(main())


def test_sockets_that_stall_after_a_byte():
    limits = RequestLimits(max_requests=2, body_seconds=60)
    with listening(app_of(Canned(), limits)) as port:
        slow = [connected(port, HEAD + b"Content-Length: 17\r\n\r\n{") for _ in range(64)]
        with connected(port, HEAD + b'Content-Length: 16\r\n\r\n{"query": "oak"}') as one:
            assert status(one) == 200
        for each in slow:
            each.close()


def test_a_request_has_a_deadline_and_leaves_its_slot():
    async def main():
        async def hang(scope, receive, send):
            await asyncio.Event().wait()

        guard, sent = Guard(hang, Tokens(None), RequestLimits(max_requests=1, seconds=0.01)), Sent()
        await guard(SCOPE, whole, sent)
        assert sent.statuses == [504]
        assert b'"code":"timeout"' in sent[1]["body"]
        assert b"no answer within 0.01 s, limits.seconds" in sent[1]["body"]
        guard.app = answer
        await guard(SCOPE, whole, sent)
        assert sent.statuses == [504, 200]

    run(main())


def test_the_deadline_counts_from_the_first_byte():
    async def main():
        sent = Sent()
        await Guard(answer, Tokens(None), RequestLimits(seconds=0.01))(SCOPE, chunks(b"{")[0], sent)
        assert sent.statuses == [504]

    run(main())


def test_an_answer_that_has_begun_is_cut_off():
    async def main():
        async def begin(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await asyncio.Event().wait()

        sent = Sent()
        await Guard(begin, Tokens(None), RequestLimits(seconds=0.01))(SCOPE, whole, sent)
        assert sent.statuses == [200]

    run(main())


def test_a_timeout_of_the_applications_own_is_a_defect():
    async def main():
        async def fail(scope, receive, send):
            raise TimeoutError("inner")

        with pytest.raises(TimeoutError, match="inner"):
            await Guard(fail, Tokens(None), RequestLimits())(SCOPE, whole, Sent())

    run(main())


def test_a_client_that_leaves_gets_no_answer():
    async def main():
        receive, messages = chunks(b"{")
        messages.append({"type": "http.disconnect"})
        sent = Sent()
        await Guard(lambda *_: pytest.fail("passed on"), Tokens(None), RequestLimits())(SCOPE, receive, sent)
        assert sent == []

    run(main())


def test_clients_that_leave_are_not_logged(caplog):
    with caplog.at_level(logging.INFO), listening(app_of(Canned(), RequestLimits())) as port:
        for part in (HEAD, HEAD + b"Content-Length: 17\r\n\r\n{", HEAD + b'Content-Length: 16\r\n\r\n{"query": "oak"}'):
            connected(port, part).close()
        with connected(port, HEAD + b'Content-Length: 16\r\n\r\n{"query": "oak"}') as one:
            assert status(one) == 200
    assert [record for record in caplog.records if record.exc_info or record.levelno > logging.INFO] == []


def test_a_defect_is_counted_as_500():
    noted = Noting()

    async def broken(*_):
        raise ZeroDivisionError

    guard = Guard(broken, Tokens(None), RequestLimits(), metrics=Metrics(noted))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(guard(SCOPE, whole, Sent()))
    assert noted.tags == [("rayhier_request_seconds", {"path": SCOPE["path"], "status": "500"})]


def test_what_is_not_admitted_is_refused_before_its_body_is_parsed():
    asked = []

    async def app(*_):
        asked.append(1)

    class Full(Admission):
        def check(self):
            raise overloaded("too much")

    sent = Sent()
    asyncio.run(Guard(app, Tokens(None), RequestLimits(), Full(math.inf))(SCOPE, whole, sent))
    assert (sent.statuses, asked) == ([503], [])
