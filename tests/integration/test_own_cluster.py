"""A Ray cluster that a command starts on this machine: where it listens, what it says."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

STARTS = """
import os, sys
from pathlib import Path
import ray
from rayhier.executor.ray import join
from rayhier.spec import load
join(load(sys.argv[1]))
def work(folder):
    if not Path(folder, "once").exists():
        Path(folder, "once").touch()
        os.kill(os.getpid(), 9)
ray.get(ray.remote(max_retries=1)(work).remote(sys.argv[2]))
print("started", flush=True)
sys.stdin.read()
"""
LISTENING = "0A"
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
"""127.0.0.1, the same as IPv6 has it, and ::1, as the kernel writes addresses."""


def descendants(pid: int) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == pid:
                yield from (int(folder.name), *descendants(int(folder.name)))


def sockets(pid: int) -> Iterator[str]:
    """Numbers of a process's sockets."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def listened_to() -> dict[str, str]:
    """Number of each listening TCP socket of this machine -> its address, as the kernel writes it."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[9]: row[1].partition(":")[0] for row in rows if row[3] == LISTENING}


@pytest.mark.skipif(not Path("/proc/net/tcp").is_file(), reason="reads Linux's table of sockets")
@pytest.mark.parametrize(("address", "variable"), [("local", None), ("auto", "local")])
def test_it_listens_on_loopback_alone_and_says_in_a_line_that_a_worker_died(address, variable, tiny_spec, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {} if variable is None else {"RAY_ADDRESS": variable}
    spec = tiny_spec(cluster=f"{{address: {address}}}")
    with subprocess.Popen(
        [sys.executable, "-c", STARTS, str(spec), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as driver:
        try:
            assert driver.stdout is not None
            assert driver.stderr is not None
            assert driver.stdout.readline() == b"started\n"
            addresses = listened_to()
            held = [
                addresses[number]
                for pid in (driver.pid, *descendants(driver.pid))
                for number in sockets(pid)
                if number in addresses
            ]
            said = next(line for line in driver.stderr if b"Ray:" in line)
        finally:
            rest, _ = driver.communicate()
    assert len(held) > 5
    assert [address for address in held if address not in LOOPBACK] == []
    # Ray tells of the worker and of its task, in either order.
    assert said.startswith((b"  Ray: A worker died or was killed", b"  Ray: Task work failed"))
    assert len(said) < 200
    assert rest == b"", "standard output is for what a program reads"
