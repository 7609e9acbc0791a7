"""Bodies that arrive in parts, and an application behind a real server, for what only sockets show."""

import asyncio
import contextlib
import socket
import threading

import uvicorn

SCOPE = {"type": "http", "method": "POST", "path": "/v1/search", "headers": []}
HEAD = b"POST /v1/search HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def listening(app, **options):
    """Serve an application on a free port of 127.0.0.1 while the block runs; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1, **options)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()  # until it runs, connections wait in the listener's queue
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def connected(port, data=b""):
    """A socket that has sent these bytes."""
    one = socket.create_connection(("127.0.0.1", port), timeout=30)
    one.sendall(data)
    return one


def status(one):
    """Status of the next answer on a socket."""
    with one.makefile("rb") as lines:
        return int(lines.readline().split()[1])


def chunks(*parts):
    """What a server hands on of a body in chunks; after these it waits for ever."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]

    async def receive():
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    return receive, messages
