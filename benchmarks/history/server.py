"""An embedded server as a process that can be killed, forked from one that has imported everything: starts are short.

What a start does after the imports is that of `rayhier serve WORKDIR`, but for two things that its first array and its
first model do in every new process, two thirds of the time of a start: pyarrow imports pandas, and transformers
compiles a thousand patterns.
"""

import os
import socket
import sys
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
import transformers.models.bert.modeling_bert  # noqa: F401  imported before the fork
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from rayhier.serve.args import ServeArgs
from rayhier.serve.embedded import serve

HOST = "127.0.0.1"
pa.array([""])
get_checkpoint_conversion_mapping("bert")


class ServerProcess:
    """A server of a workdir, started and killed again and again on one port."""

    def __init__(self, work: Path, folder: Path, args: dict[str, Any]) -> None:
        """Take a workdir, a folder for the server's output, and arguments of a server."""
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._args, self._output = {"workdir": str(work), **args}, folder / "server.log"
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self._port: int = probe.getsockname()[1]
        self._process: ForkServerProcess | None = None

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Process id; ProcessLookupError where none runs."""
        if self._process is None or self._process.pid is None:
            raise ProcessLookupError("no server runs")
        return self._process.pid

    @property
    def ended(self) -> bool:
        """True where the process is gone, whoever ended it."""
        return self._process is None or self._process.exitcode is not None

    def start(self) -> None:
        """Start a process; its requests are refused until it listens."""
        self._process = self._context.Process(target=_serve, args=(self._args, self._port, str(self._output)))
        self._process.start()

    def kill(self) -> None:
        """Kill the process (SIGKILL) and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(args: dict[str, Any], port: int, output: str) -> None:
    """Serve in this process, whose output goes to a file."""
    opened = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    os.environ["RAYHIER_CACHE"] = f"{output}.cache"  # looking through a user's, with much else, takes time
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    serve(ServeArgs.model_validate(args), HOST, port, lambda: print("ready"))
