"""Repeats work in a thread during a block, and tells if a process still lives."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@contextlib.contextmanager
def repeating(work: Callable[[], object], seconds: float) -> Iterator[None]:
    """Repeat `work` every `seconds` during the block. After an OSError the next call is made as usual."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(seconds):
            with contextlib.suppress(OSError):
                work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        if thread is not threading.current_thread():  # garbage collection in this thread may end the block
            thread.join()


@dataclass(frozen=True)
class Process:
    """Identifies a process for other processes of its machine. A process id alone could be used again."""

    pid: int
    host: str
    machine: str | None
    """Id of the machine's boot, and namespace of process ids. None if the system does not tell."""
    started: str | None
    """Time of the process's start, in ticks since boot."""

    @classmethod
    def here(cls) -> "Process":
        pid, machine = os.getpid(), _machine()
        return cls(pid, socket.gethostname(), machine, None if machine is None else started(pid))

    @property
    def has_ended(self) -> bool:
        """True if the process is known to have ended. False if it lives, or if the system does not tell."""
        return self.machine is not None and self.machine == _machine() and self.started != started(self.pid)


def started(pid: int) -> str | None:
    """Return when a process started, in ticks since boot, or `running` if unknown. None if the process has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if (PROC / "self").exists() or not _answers(pid) else "running"
    return None if fields[0] in "ZX" else fields[19]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _machine() -> str | None:
    with contextlib.suppress(OSError):
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(PROC / 'self/ns/pid').readlink()}"
    return None
