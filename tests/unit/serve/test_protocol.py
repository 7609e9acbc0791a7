"""What comes before a body, over real sockets: heads have limits, and a client that half-closes gets its answer."""

import asyncio
import json
import socket
import threading
from contextlib import ExitStack, suppress

import pytest
from starlette.responses import PlainTextResponse

from rayhier.serve.http import protocol
from rayhier.serve.http.protocol import HEAD_BYTES, LimitedProtocol

from .sockets import connected, listening

CHUNKED = b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"


async def refusing(scope, receive, send):
    """Refuse every request before its body is there."""
    await PlainTextResponse("too large", 413, {"Connection": "close"})(scope, receive, send)


async def app(scope, receive, send):
    """Answer with the length of the body, once all of it is there."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await PlainTextResponse(f"{scope['path']} {size}")(scope, receive, send)


@pytest.fixture
def port():
    with listening(app, http=LimitedProtocol) as number:
        yield number


def answer(connection):
    """Status, headers and body of everything that comes until the server closes."""
    said = b""
    while chunk := connection.recv(65_536):
        said += chunk
    head, _, body = said.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in fields), body


def refused(connection):
    """Status and code of a refusal, which has the form of every error, and ends the connection."""
    status, fields, body = answer(connection)
    assert (fields["content-type"], fields["connection"]) == ("application/json", "close")
    return status, json.loads(body)["error"]["code"]


UPLOAD = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 800000000\r\n\r\n"
ENDLESS = {
    "a head": (app, b"GET / HTTP/1.1\r\nX: ", b"x"),
    "trailers": (app, CHUNKED + b"0\r\n", b"a: b\r\n"),
    "a trailer of what was refused": (refusing, CHUNKED + b"0\r\nt: ", b"x"),
    "a body that was refused": (refusing, UPLOAD, b"x"),
}


@pytest.mark.parametrize(("served", "start", "piece"), ENDLESS.values(), ids=ENDLESS)
def test_what_has_no_end_is_cut_off(monkeypatch, served, start, piece):
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 0.05)
    pieces = piece * (10_000 // len(piece))
    with listening(served, http=LimitedProtocol) as number, connected(number, start) as one, suppress(OSError):
        for _ in range(80_000):
            one.sendall(pieces)
        pytest.fail("not cut off")


def test_a_head_that_is_too_long_is_431(port):
    for head in (
        b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES,
        b"GET /" + b"x" * HEAD_BYTES + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n" + b"A: b\r\n" * (HEAD_BYTES // 6) + b"\r\n",
    ):
        with connected(port, head) as one:
            assert refused(one) == (431, "head_too_large")


def test_a_head_that_comes_too_slowly_is_408_and_a_connection_that_says_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    with listening(app, http=LimitedProtocol) as number:
        with connected(number, b"GET / HT") as one:
            assert refused(one) == (408, "timeout")
        with connected(number) as one:
            assert one.recv(10) == b""


def test_who_is_refused_while_it_sends_can_read_why():
    with listening(refusing, http=LimitedProtocol) as number, connected(number, UPLOAD) as one:
        one.sendall(b"x" * 8_000_000)
        status, _, body = answer(one)
        assert (status, body) == (413, b"too large")


def test_garbage_after_a_request_ends_the_connection_once_it_is_answered(port, caplog):
    with connected(port, GET + b"GARBAGE\r\n\r\n") as client:
        status, fields, body = answer(client)
    assert (status, fields["connection"], body) == (200, "close", b"/a 0")
    with connected(port, CHUNKED + b"3\r\nabc\r\nGARBAGE\r\n\r\n") as client:
        assert refused(client) == (400, "not_http")
    assert [record.levelname for record in caplog.records] == ["WARNING"], "no traceback"


def test_a_client_that_half_closes_gets_its_answer(port):
    with connected(port, b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok") as one:
        one.shutdown(socket.SHUT_WR)
        status, _, body = answer(one)
        assert (status, body) == (200, b"/p 2")


def closed(connection):
    """Whether the server has closed a connection, on which nothing else comes."""
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_further_connection_takes_the_place_of_the_longest_idle_one():
    async def known(scope, receive, send):
        if scope["path"] == "/known":
            scope["state"]["known"] = True
        await PlainTextResponse("a")(scope, receive, send)

    with listening(known, http=LimitedProtocol, limit_concurrency=5) as number, ExitStack() as stack:
        opened = []
        for path in (b"/known", *[b"/a"] * 20):
            opened.append(stack.enter_context(connected(number, GET.replace(b"/a", path))))
            assert opened[-1].recv(65_536).startswith(b"HTTP/1.1 200")
        assert [closed(each) for each in opened] == [False] + [True] * 17 + [False] * 3


def test_a_further_connection_is_refused_while_all_are_at_work():
    leave, begun = threading.Event(), threading.Semaphore(0)

    async def busy(scope, receive, send):
        begun.release()
        while not leave.is_set():
            await asyncio.sleep(0.01)
        await PlainTextResponse("a")(scope, receive, send)

    with listening(busy, http=LimitedProtocol, limit_concurrency=4) as number:
        working = [connected(number, GET) for _ in range(3)]
        assert all(begun.acquire(timeout=30) for _ in working)
        with connected(number) as one, suppress(ConnectionError):
            assert one.recv(10) == b""
        leave.set()
        for each in working:
            assert each.recv(65_536).startswith(b"HTTP/1.1 200")
            each.close()


@pytest.mark.parametrize("is_read", [True, False])
def test_an_answer_is_sent_once_it_is_read(is_read):
    over = threading.Event()

    async def large(scope, receive, send):
        with suppress(TimeoutError):
            async with asyncio.timeout(30 if is_read else 0.05):
                await PlainTextResponse("x" * 50_000_000)(scope, receive, send)
        over.set()

    with listening(large, http=LimitedProtocol) as number, connected(number, GET) as one, suppress(ConnectionError):
        assert over.wait(0.2 if is_read else 30) is not is_read
        size = 0
        while size < 50_000_000 and (chunk := one.recv(1 << 20)):
            size += len(chunk)
        assert (size >= 50_000_000) is is_read


def test_nothing_is_upgraded(port, caplog):
    for kind in (b"websocket", b"h2c"):
        head = GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n" % kind)
        with connected(port, head) as one:
            status, fields, body = answer(one)
            assert (status, body, fields["connection"]) == (200, b"/a 0", "close")
    assert caplog.records == []
