"""`rayhier serve WORKDIR`, as a user starts it: it does what every server does, and ends as it is told."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayhier.search.searcher import Searcher

from .conformance import TOKEN, WRITE_TOKEN, conforms, writes

PATIENCE = ["--set", "limits.queue_seconds=30"]
"""Tests of other processes make this server wait."""


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@pytest.fixture
def process(work: Path, tmp_path: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """The command as a script's background job, which starts without SIGINT; once it says where it serves."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "write").write_text(WRITE_TOKEN)
    command = [sys.executable, "-m", "rayhier", "serve", str(work), "--port", str(port)]
    command += ["--token-file", str(tmp_path / "token"), "--write-token-file", str(tmp_path / "write"), *PATIENCE]
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        first = started.stdout.readline()
        assert first.startswith(f"serving at http://127.0.0.1:{port}"), started.communicate()
        yield started
        started.kill()


def test_it_does_what_every_server_does(process: subprocess.Popen[str], work: Path, built: Path, port: int) -> None:
    searcher = Searcher.open(work)
    conforms(f"http://127.0.0.1:{port}", searcher, built, ["shards-0"])
    writes(f"http://127.0.0.1:{port}", searcher)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()[-1]) == (130, "stopped")
    assert "Traceback" not in said


def test_it_ends_with_0_where_it_is_told_to(process: subprocess.Popen[str]) -> None:
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in said


def test_the_sample_query_that_it_prints_is_answered(process: subprocess.Popen[str], port: int) -> None:
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    body = re.search(r"-d '(.*)'", "".join(lines))
    assert body is not None
    head = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/search", body[1].encode(), head)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert len(json.loads(answer.read())["results"]) == 3


REFUSED = {
    "no index": (["nowhere"], "current.json: no such file"),
    "another machine without a token": (["WORK", "--host", "0.0.0.0"], "--host: got 0.0.0.0, which other machines"),
    "an unknown argument": (
        ["WORK", "--set", "limits.max_q=5"],
        "--set limits.max_q: got no argument of a server",
    ),
    "a limit below the spec": (["WORK", "--set", "limits.max_k=1"], "limits.max_k: got 1; allowed: at least"),
    "no port": (["WORK", "--port", "70000"], "port: got 70000; allowed: 1 to 65535"),
    "a token's file without one": (["WORK", "--token-file", "/dev/null"], "token_file"),
    "a config without a workdir": (["jobs/serve.yaml"], "--workdir: got none with a Serve config"),
}


@pytest.mark.parametrize(("arguments", "said"), REFUSED.values(), ids=REFUSED)
def test_mistakes_are_said_in_one_line(work: Path, port: int, arguments: list[str], said: str) -> None:
    given = [str(work) if part == "WORK" else part for part in arguments]
    given += [] if "--port" in given else ["--port", str(port)]
    done = subprocess.run(
        [sys.executable, "-m", "rayhier", "serve", *given], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    wrong = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(wrong) == 1
    assert said in wrong[0]
    assert "Traceback" not in done.stderr
