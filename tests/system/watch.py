"""A server's health, asked for all the time while something else goes on.

By a process of its own: in a thread beside what makes the load it would measure that, not the server.
"""

import math
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ENDED = "ended after"
"""What the process says last, with its seconds."""


@dataclass
class Looks:
    """Seconds of each look at a server's health, infinite where it failed, and of all that they were taken in."""

    pause: float
    """Seconds between two looks."""
    seconds: list[float] = field(default_factory=list)
    elapsed: float = 0.0

    @property
    def slowest(self) -> float:
        """Seconds of the slowest look; infinite too where fewer than half of those there was time for were taken."""
        slowest = max(self.seconds, default=math.inf)
        return slowest if 2 * len(self.seconds) >= self.elapsed / (self.pause + slowest) else math.inf


@contextmanager
def watched(url: str, pause: float) -> Iterator[Looks]:
    """Look at an address again and again, with a pause after each look, until the block ends."""
    looks, command = Looks(pause), [sys.executable, "-m", "tests.system.watch", url, str(pause)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()  # it has begun
        try:
            yield looks
        finally:
            said += process.communicate()[0]  # closes its input, at which it ends
            taken, _, elapsed = said.partition(ENDED)
            looks.seconds += map(float, taken.split())
            looks.elapsed = float(elapsed or math.inf)


def main() -> None:
    """Print the seconds of each look at an address, and of all together once the input is closed."""
    url, pause, began, ended = sys.argv[1], float(sys.argv[2]), time.perf_counter(), False
    while not ended:
        print(_look(url), flush=True)
        ended = bool(select.select([sys.stdin], [], [], pause)[0])
    print(ENDED, time.perf_counter() - began)


def _look(url: str) -> float:
    """Seconds until a good answer; infinite where there is none."""
    began = time.perf_counter()
    try:
        urllib.request.urlopen(url, timeout=60).close()
    except Exception:  # noqa: BLE001  whatever it is, the server was not seen to be healthy
        return math.inf
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
