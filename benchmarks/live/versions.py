"""Time of a single change over HTTP: servers of several checkouts of rayhier, each over a copy of one workdir, in turn.

    python -m benchmarks.live.versions WORKDIR CHECKOUT CHECKOUT

The first checkout is what the others are compared with. Requests go to each server in turn, so that noise of the
machine meets all alike.
"""

import contextlib
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2

from benchmarks.commands import Options, absolute
from rayhier.serve.client import Client

CHANGES, WARM = 400, 40


@contextlib.contextmanager
def served(checkout: Path, workdir: Path, folder: Path) -> Iterator[Client]:
    """Serve a copy of a workdir by the code of a checkout."""
    copy, tokens, port = shutil.copytree(workdir, folder / "work"), [], 21000 + secrets.randbelow(9000)
    for name in ("token", "write-token"):
        (folder / name).write_text(secrets.token_hex(16))
        (folder / name).chmod(0o600)
        tokens += [f"--{name}-file", str(folder / name)]
    command = [sys.executable, "-m", "rayhier", "serve", str(copy), "--port", str(port), *tokens]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=checkout, env=environment, stdout=log, stderr=log)
    try:
        url, token = f"http://127.0.0.1:{port}", (folder / "write-token").read_text()
        for _ in range(600):
            with contextlib.suppress(httpx2.TransportError):
                if httpx2.get(f"{url}/readyz").is_success:
                    break
            time.sleep(0.1)
        with Client(url, token) as client:
            yield client
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Print the median milliseconds of a change for each checkout, and their ratio to the first's."""
    parser = Options("Time of a single change over HTTP, by the code of several checkouts.")
    parser.add_argument("workdir", type=absolute)
    parser.add_argument("checkouts", type=absolute, nargs="+")
    options = parser.parse_args()
    with contextlib.ExitStack() as closing:
        scratch = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        clients = list[Client]()
        for number, checkout in enumerate(options.checkouts):
            (scratch / str(number)).mkdir()
            clients.append(closing.enter_context(served(checkout, options.workdir, scratch / str(number))))
        taken: list[list[float]] = [[] for _ in clients]
        for change in range(CHANGES + WARM):
            for client, times in zip(clients, taken, strict=True):
                began = time.perf_counter()
                client.put([{"id": f"new{change}", "text": f"the heron number {change} of the fernwood"}])
                times.append((time.perf_counter() - began) * 1e3)
        print(f"{'checkout':40s} {'median ms':>10s} {'p90 ms':>8s} {'ratio of medians':>17s}")
        first = statistics.median(taken[0][WARM:])
        for checkout, times in zip(options.checkouts, taken, strict=True):
            median, p90 = statistics.median(times[WARM:]), statistics.quantiles(times[WARM:], n=10)[-1]
            print(f"{checkout.name:40s} {median:10.2f} {p90:8.2f} {median / first:17.3f}")


if __name__ == "__main__":
    main()
