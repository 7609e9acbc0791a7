"""An embedded server as a process that can be killed and paused, forked from one that has imported everything.

So starts are short. After the imports a start does what `rayhier serve WORKDIR` does, but for two things that take two
thirds of the time in a new process: pyarrow imports pandas, and transformers compiles a thousand patterns. Its disk can
refuse writes: by a limit of a file's size, which cuts writes short, or by an fsync that fails.
"""

import ctypes
import errno
import os
import resource
import signal
import socket
import sys
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import transformers.models.bert.modeling_bert  # noqa: F401  imported before the fork
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from rayhier.serve.args import ServeArgs
from rayhier.serve.backend import changes
from rayhier.serve.embedded import serve
from rayhier.storage import writer_lease

HOST = "127.0.0.1"
LEASE_SECONDS = 1.5
"""Seconds for which a Writer's lease holds, in place of fifteen: so pauses are short."""
DIES_WITH_PARENT = 1
Refusal = Literal["short", "full", "fsync"]
SIZES = {"short": 300, "full": 0}
"""Bytes of a file that a disk takes."""
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
        self._fails = self._context.Value("b", 0)
        """1 while fsync fails."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def ended(self) -> bool:
        """True if the process is gone, whoever ended it."""
        return self._process is None or self._process.exitcode is not None

    @property
    def met_swap(self) -> bool:
        """True if the last process ended because a swap came during its start, which then says so in its output."""
        return self._output.read_text(errors="replace").rstrip().endswith("start again")

    def start(self) -> None:
        arguments = self._args, self._port, str(self._output), self._fails
        self._process = self._context.Process(target=_serve, args=arguments)
        self._process.start()

    def pause(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def refuse(self, how: Refusal) -> None:
        """Let the disk take no change from here on, until `accept`."""
        if how == "fsync":
            self._fails.value = 1
        else:
            self._limit(SIZES[how])

    def accept(self) -> None:
        self._fails.value = 0
        if not self.ended:
            self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    @property
    def _pid(self) -> int:
        if self._process is None or self._process.pid is None:
            raise ProcessLookupError("no server runs")
        return self._process.pid


def _serve(args: dict[str, Any], port: int, output: str, fails: Any) -> None:
    """Serve in this process, whose output goes to a file."""
    opened, fsync = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), os.fsync
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)

    def failing(opened: int) -> None:
        if fails.value:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(opened)

    os.fsync = failing
    changes.leased = partial(writer_lease.leased, seconds=LEASE_SECONDS)  # type: ignore[assignment]
    os.environ["RAYHIER_CACHE"] = f"{output}.cache"  # looking through a user's, with much else, takes time
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    serve(ServeArgs.model_validate(args), HOST, port, lambda: print("ready"))
