"""An ASGI application behind a real server on this machine, for what only sockets show."""

import contextlib
import socket
import threading

import uvicorn


@contextlib.contextmanager
def listening(app):
    """Serve an application on a free port of 127.0.0.1 while the block runs; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
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
