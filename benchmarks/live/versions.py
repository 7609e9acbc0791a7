"""Time of a single change over HTTP, by the code of several checkouts of rayhier, each with a copy of one workdir.

    python -m benchmarks.live.versions WORKDIR CHECKOUT CHECKOUT

The first checkout is the baseline. Requests go to each server in turn, because then noise of the machine slows all
servers alike.
"""

import contextlib
import secrets
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.commands import Options, absolute, served
from rayhier.serve.client import Client

CHANGES, WARM = 400, 40


@contextlib.contextmanager
def client_of(checkout: Path, workdir: Path, folder: Path) -> Iterator[Client]:
    """Serve a copy of a workdir by the code of a checkout, and connect to the server."""
    copy, options = shutil.copytree(workdir, folder / "work"), list[str]()
    for name in ("token", "write-token"):
        (folder / name).write_text(secrets.token_hex(16))
        (folder / name).chmod(0o600)
        options += [f"--{name}-file", str(folder / name)]
    port = 21000 + secrets.randbelow(9000)
    url = f"http://127.0.0.1:{port}"
    command = ["rayhier", "serve", str(copy), "--port", str(port), *options]
    with served(command, f"{url}/readyz", folder=checkout), Client(url, (folder / "write-token").read_text()) as client:
        yield client


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
            clients.append(closing.enter_context(client_of(checkout, options.workdir, scratch / str(number))))
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
