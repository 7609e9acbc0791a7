"""A Ray cluster of two nodes on this machine, and jobs that are submitted to it."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from benchmarks.collection import ROOT
from benchmarks.machine import below, free_ports, listens

RAY = str(Path(sys.executable).with_name("ray"))
PORTS = ("dashboard-agent-listen-port", "dashboard-agent-grpc-port", "runtime-env-agent-port", "metrics-export-port")
HEAD_PORTS = ("port", "dashboard-port", "ray-client-server-port")
CPUS, STORE = 1, 500_000_000
"""CPUs of a node, and bytes of its object store."""
STARTED_WITHIN = 180.0
ALL = "import ray; ray.init(); raise SystemExit(sum(node['Alive'] for node in ray.nodes()) < {})"
"""A job that succeeds if the cluster has at least so many nodes."""
POLL = 0.2


class Cluster:
    """A head with a dashboard, which asks for a token, and a second node that may be killed and replaced."""

    def __init__(self, workdir: Path, session: str, nodes: int) -> None:
        """Start one node or two. `session` is a folder with a short path, in which Ray keeps sockets and logs.

        Each node has its own folder there, as it would on its own machine. A node that starts removes the copy of a
        job's files from its folder.
        """
        self._session, self._nodes, self._wanted = session, 0, nodes
        token = workdir / "home" / ".ray" / "auth_token"
        token.parent.mkdir(parents=True, exist_ok=True)
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        self._log = (workdir / "nodes.log").open("ab")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "PYTHON"))}
        kept |= {"HOME": str(workdir / "home"), "PATH": f"{Path(RAY).parent}{os.pathsep}{os.environ['PATH']}"}
        self.environment = kept | {"RAY_AUTH_MODE": "token", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
        ports = dict(zip(HEAD_PORTS, free_ports(len(HEAD_PORTS)), strict=True))
        self._gcs = f"127.0.0.1:{ports['port']}"
        self.address = f"http://127.0.0.1:{ports['dashboard-port']}"
        named = [f"--{name}={port}" for name, port in ports.items()]
        self._head = self._start("--head", "--dashboard-host=127.0.0.1", *named)
        while not listens(ports["port"]) and self._head.poll() is None:
            time.sleep(POLL)
        self._second: subprocess.Popen[bytes] | None = None
        if nodes > 1:
            self.add_node()

    def add_node(self) -> None:
        """Start the second node."""
        self._second = self._start(f"--address={self._gcs}")

    def kill_node(self) -> None:
        """Kill the second node, all its processes at once."""
        if self._second is not None:
            kill(self._second)

    def wait(self) -> None:
        """Wait until all nodes have joined and a job succeeds. Ends the benchmark if that takes too long."""
        end = time.monotonic() + STARTED_WITHIN
        with tempfile.TemporaryFile() as log:
            while self.submit(["python", "-c", ALL.format(self._wanted)], log).wait() != 0:
                if self._head.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    sys.exit(f"the cluster does not have {self._wanted} nodes: {log.read().decode()[-2000:]}")
                time.sleep(POLL)

    def submit(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Submit a command as `ray job submit` does, with this folder; the process follows the job to its end."""
        call = [RAY, "job", "submit", "--address", self.address, "--working-dir", "."]
        call += ["--runtime-env", "jobs/runtime_env.yaml", "--", *command]
        environment = self.environment | {"PYTHONUNBUFFERED": "1"}  # else lines of the job come at its end
        return subprocess.Popen(call, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def close(self) -> None:
        """End both nodes and no other cluster of this machine, as `ray stop` would."""
        self.kill_node()
        kill(self._head)
        self._log.close()

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        ports = [f"--{name}={port}" for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True)]
        ports += [f"--{name}-worker-port=0" for name in ("min", "max")]
        call = [RAY, "start", "--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1", *arguments]
        self._nodes += 1
        call += [f"--temp-dir={self._session}/{self._nodes}", f"--num-cpus={CPUS}", f"--object-store-memory={STORE}"]
        return subprocess.Popen([*call, *ports], env=self.environment, stdout=self._log, stderr=self._log)


@contextmanager
def cluster(workdir: Path, nodes: int = 2) -> Iterator[Cluster]:
    """One node or two while the block runs."""
    with tempfile.TemporaryDirectory(prefix="rh", ignore_cleanup_errors=True) as session:
        started = Cluster(workdir, session, nodes)
        try:
            yield started
        finally:
            started.close()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all below it."""
    for pid in below(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def drivers(workdir: Path) -> list[int]:
    """Processes, below this one, that run `rayhier.run` on a workdir; neither the shell around it nor who submitted."""
    found = []
    for pid in below(os.getpid()):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[1:3] == ["-m", "rayhier.run"] and f"workdir={workdir}" in words:
                found.append(pid)
    return found
