"""Time a change over HTTP and the search after it, by the code of several checkouts of rayhier.

    make bench NAME=live.versions ARGS="CHECKOUT=WORKDIR CHECKOUT=WORKDIR"

Each checkout serves a copy of its workdir. The first one is the baseline. Requests go to each server in turn, because
then noise of the machine slows all servers alike.
"""

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

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
    """Print the median milliseconds of a change and of a search for each checkout, and the ratios to the first's."""
    parser = Options("Time a change over HTTP and the search after it, by the code of several checkouts.")
    parser.add_argument("served", nargs="+", help="CHECKOUT=WORKDIR")
    options = parser.parse_args()
    pairs = [[absolute(text) for text in pair.split("=")] for pair in options.served]
    with contextlib.ExitStack() as closing:
        scratch = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        clients = list[Client]()
        for number, (checkout, workdir) in enumerate(pairs):
            (scratch / str(number)).mkdir()
            clients.append(closing.enter_context(client_of(checkout, workdir, scratch / str(number))))
        taken: list[list[tuple[float, float]]] = [[] for _ in clients]
        for change in range(CHANGES + WARM):
            text = f"the heron number {change} of the fernwood"
            for client, times in zip(clients, taken, strict=True):
                began = time.perf_counter()
                client.put([{"id": f"new{change}", "text": text}])
                written = time.perf_counter()
                client.search(text, k=10)
                times.append(((written - began) * 1e3, (time.perf_counter() - written) * 1e3))
    print(f"{'checkout':20s} {'of':8s} {'median ms':>10s} {'p90 ms':>8s} {'median of ratios':>17s}")
    measured = np.array(taken)[:, WARM:]
    for place, of in enumerate(("change", "search")):
        for (checkout, _), times in zip(pairs, measured[:, :, place], strict=True):
            ratio = np.median(times / measured[0, :, place])
            print(f"{checkout.name:20s} {of:8s} {np.median(times):10.2f} {np.quantile(times, 0.9):8.2f} {ratio:17.3f}")


if __name__ == "__main__":
    main()
