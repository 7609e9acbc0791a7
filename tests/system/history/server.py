"""An embedded server as a process that can be killed and paused, forked from one that has imported everything.

So starts are short. After the imports a start does what `rayhier serve WORKDIR` does, but for two things that take two
thirds of the time in a new process: pyarrow imports pandas, and transformers compiles a thousand patterns. Each server
has its namespace of process ids, if this process may make one, as two containers with one host name have. Its clock can
jump, and its fsync can fail.
"""

import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import pyarrow as pa
import transformers.models.bert.modeling_bert  # noqa: F401  imported before the fork
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from rayhier.index import change, pack
from rayhier.index.shards import write_rows
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend import changes
from rayhier.serve.embedded import serve
from rayhier.storage import writer_lease

HOST = "127.0.0.1"
LEASE_SECONDS = 1.5
"""Seconds for which a Writer's lease holds, in place of fifteen: so pauses are short."""
NEW_PIDS, NEW_MOUNTS, DIES_WITH_PARENT = 0x20000000, 0x20000, 1
pa.array([""])
get_checkpoint_conversion_mapping("bert")


class ServerProcess:
    """A server of a workdir, started and killed again and again on one port."""

    def __init__(self, work: Path, folder: Path, args: dict[str, Any], name: str = "server") -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._args, self._output = {"workdir": str(work), **args}, folder / f"{name}.log"
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self._port: int = probe.getsockname()[1]
        self._process: ForkServerProcess | None = None
        # The process that holds the namespace: servers that follow each other know which of them have ended.
        self._holder = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sleep", "infinity"])
        self._pid = self._context.Value("q", 0)
        self.clock = self._context.Value("d", 0.0)
        """Seconds by which the server's clock is wrong."""
        self.fails = self._context.Value("b", 0)
        """1 while fsync fails."""
        self.slow = self._context.Value("d", 0.0)
        """Seconds that it takes longer to write a file of leaves."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the server; ProcessLookupError if none runs."""
        if self._process is None or self._pid.value == 0:
            raise ProcessLookupError("no server runs")
        return int(self._pid.value)

    @property
    def ended(self) -> bool:
        """True if the process is gone, whoever ended it."""
        return self._process is None or self._process.exitcode is not None

    @property
    def met_swap(self) -> bool:
        """True if the last process ended because a swap came during its start, which then says so in its output."""
        return self._output.read_text(errors="replace").rstrip().endswith("start again")

    def start(self) -> None:
        self._pid.value = 0
        faults = self.clock, self.fails, self.slow
        arguments = self._args, self._port, str(self._output), self._holder.pid, self._pid, faults
        self._process = self._context.Process(target=_serve, args=arguments)
        self._process.start()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            if self._pid.value:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself
                    os.kill(self.pid, signal.SIGKILL)
            else:
                self._process.kill()
            self._process.join()
            self._process = None

    def close(self) -> None:
        self.kill()
        self._holder.kill()
        self._holder.wait()


def _serve(
    args: dict[str, Any], port: int, output: str, holder: int, pid: "Synchronized[int]", faults: Sequence[Any]
) -> None:
    """Serve in a process with process ids of its own, whose output goes to a file; this process waits for it."""
    opened = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    libc, has_namespace = ctypes.CDLL(None), False
    with contextlib.suppress(OSError):
        has_namespace = libc.setns(os.open(f"/proc/{holder}/ns/pid_for_children", os.O_RDONLY), NEW_PIDS) == 0
    if child := os.fork():
        pid.value = child
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
    libc.prctl(DIES_WITH_PARENT, signal.SIGKILL)
    if has_namespace and libc.unshare(NEW_MOUNTS) == 0:
        libc.mount(b"none", b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE: what follows is of this process alone
        libc.mount(b"proc", b"/proc", b"proc", 0, None)
    _disturb(*faults)
    os.environ["RAYHIER_CACHE"] = f"{output}.cache"  # looking through a user's, with much else, takes time
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    serve(ServeArgs.model_validate(args), HOST, port, lambda: print("ready"))


def _disturb(clock: "Synchronized[float]", fails: Any, slow: "Synchronized[float]") -> None:
    """Let the clock of leases, fsync and the writing of leaves be what the driver says."""
    fsync = os.fsync

    def failing(opened: int) -> None:
        if fails.value:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(opened)

    def late(*arguments: Any, **more: Any) -> Any:
        written = write_rows(*arguments, **more)
        time.sleep(slow.value)
        return written

    for place, name, function in (
        (os, "fsync", failing),
        (change, "write_rows", late),
        (pack, "write_rows", late),
        (writer_lease, "now", lambda: time.time() + clock.value),
        (changes, "leased", partial(writer_lease.leased, seconds=LEASE_SECONDS)),
    ):
        setattr(place, name, function)
