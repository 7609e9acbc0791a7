"""Find a Ray cluster that answers, without importing Ray."""

import os
import socket
import sys
import tempfile
from pathlib import Path

from rayhier.spec import InputError

ADDRESS = "RAY_ADDRESS"
"""Environment variable with the address of a cluster. `ray job submit` sets it for the job."""
CONNECT_SECONDS = 10.0


def running() -> str | None:
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return "this process is connected to a cluster"
    if address := os.environ.get(ADDRESS):
        return f"{ADDRESS} is {address}"
    return "a cluster runs on this machine" if noted() else None


def noted() -> bool:
    """Return True if the cluster that `ray start` noted on this machine still answers."""
    try:
        address = Path(tempfile.gettempdir(), "ray", "ray_current_cluster").read_text().strip()
        check_answers(address, "cluster.address")
    except (OSError, InputError):
        return False
    return bool(address)


def check_answers(address: str, key: str) -> None:
    """Check that HOST:PORT listens. InputError if nothing listens there, because Ray would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"{key}: got {address!r}, but nothing answers there ({error}); "
            "allowed: auto, local, or HOST:PORT of a running cluster"
        ) from None
