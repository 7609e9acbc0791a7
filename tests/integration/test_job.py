"""A submitted job on a cluster of its own, which asks for a token: what it leaves, and what it is refused."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.machine import free_ports, listens
from rayhier.search.native import form
from rayhier.storage import current, files

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
STARTED_WITHIN = 180
POLL_SECONDS = 0.1
JOB_SECONDS = 240


@dataclass(frozen=True)
class Head:
    """A running head node."""

    ports: tuple[int, int]
    """Of the dashboard, and of the agent that starts jobs."""
    environment: dict[str, str]
    """Whose HOME holds the token."""

    @property
    def address(self) -> str:
        """Where jobs are submitted."""
        return f"http://127.0.0.1:{self.ports[0]}"

    def submit(self, folder: Path, *command: str, without_token: bool = False) -> subprocess.CompletedProcess[str]:
        """`ray job submit`, which follows the job; standard error is among its output."""
        environment = dict(self.environment)
        if without_token:
            environment.pop("RAY_AUTH_MODE")
        call = [BIN / "ray", "job", "submit", "--address", self.address, "--working-dir", folder, "--", *command]
        return subprocess.run(
            call, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=JOB_SECONDS
        )

    def submit_soon(self, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
        """Submit a command once dashboard and agent listen, again and again while the cluster still starts."""
        end = time.monotonic() + STARTED_WITHIN
        pause = threading.Event()
        for port in self.ports:
            while not listens(port) and time.monotonic() < end:
                pause.wait(POLL_SECONDS)
        while True:
            ended = self.submit(folder, *command)
            starting = "No available agent" in ended.stdout or "Failed to connect to Ray" in ended.stdout
            if not starting or time.monotonic() > end:
                return ended


@pytest.fixture
def head(tmp_path):
    """A cluster of four logical CPUs on free ports, in a session folder whose sockets have short paths."""
    token = tmp_path / "home" / ".ray" / "auth_token"
    token.parent.mkdir(parents=True)
    token.write_text("0123456789abcdef" * 4)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "PYTHON"))}
    kept |= {"HOME": str(tmp_path / "home"), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    kept |= {"RAY_AUTH_MODE": "token", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    ports = free_ports(6)
    with tempfile.TemporaryDirectory(prefix="rh", ignore_cleanup_errors=True) as session:
        command = [BIN / "ray", "start", "--head", "--block", "--disable-usage-stats", f"--temp-dir={session}"]
        command += ["--num-cpus=4", "--object-store-memory=200000000", "--dashboard-host=127.0.0.1"]
        command += [f"--{name}={port}" for name, port in zip(PORTS, ports, strict=True)]
        command += [f"--{name}-worker-port=0" for name in ("min", "max")]
        with (tmp_path / "head.log").open("wb") as log:
            started = subprocess.Popen(command, env=kept, stdout=log, stderr=log, start_new_session=True)
            try:
                yield Head((ports[1], ports[2]), kept)
            finally:
                stop(started, session)


PORTS = (
    "port",
    "dashboard-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "ray-client-server-port",
    "metrics-export-port",
)


def stop(started: subprocess.Popen[bytes], folder: str) -> None:
    """End this cluster and no other: `ray stop` would end every one of this machine."""
    listed = subprocess.run(["ps", "-eo", "pid=,sess=,args="], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        pid, session, command = line.split(maxsplit=2)
        if int(session) == started.pid or folder in command:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    started.wait()


@pytest.mark.slow
def test_a_job_by_its_command(head, work, tiny_spec, tmp_path):
    """It goes on from a trained model: how a job reaches its workers is the same in every stage."""
    folder = tmp_path / "project"
    shutil.rmtree(work / "index")
    shutil.copytree(ROOT / "rayhier", folder / "rayhier", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "specs").mkdir()
    shutil.copy(tiny_spec(), folder / "specs" / "tiny.yaml")
    command = ("python", "-m", "rayhier.run", "specs/tiny.yaml", "--set")

    made = head.submit_soon(folder, *command, f"workdir={work}")
    assert made.returncode == 0, made.stdout[-3000:]
    artifacts = current.read(work).artifacts
    assert set(artifacts) == {"corpus", "vectors", "test", "model", "index", "calibration", "evaluate"}
    assert files.read_json(work / "report.json")["name"] == "tiny"
    assert "runs on Ray: RAY_ADDRESS is " in made.stdout
    assert f"calibrate: scanned by {form()}" in made.stdout  # native, though the job's sources have no built module

    refused = head.submit(folder, *command, "workdir=runs/tiny")
    assert refused.returncode != 0
    assert (
        "error: workdir: got 'runs/tiny': inside a Ray job the working directory is a temporary copy" in refused.stdout
    )
    assert "Traceback" not in refused.stdout.partition("error: ")[2].partition("\n")[0]

    unknown = head.submit(folder, *command, f"workdir={tmp_path}/unknown", without_token=True)
    assert unknown.returncode != 0
    assert "token" in unknown.stdout
    assert not (tmp_path / "unknown").exists()
