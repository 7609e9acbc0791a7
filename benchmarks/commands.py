"""Shared parts of the commands: options, lines of progress, and work in separate processes."""

import argparse
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.collection import QUALITY, ROOT, RUNS
from rayhier.progress import say


class Options(argparse.ArgumentParser):
    """Options of a benchmark: its own, and those by name that several have."""

    def __init__(self, description: str, workdir: str | None = None, *shared: str) -> None:
        """Start the options; a workdir is below runs/ where none is given."""
        module = sys.modules["__main__"].__spec__
        name = module.name.removesuffix(".__main__") if module else "benchmarks"
        super().__init__(prog=f"python -m {name}", description=description)
        if workdir is not None:
            self.add_argument("--workdir", type=absolute, default=RUNS / workdir, help="folder of the results")
        for name in shared:
            self.add_argument(f"--{name}", **SHARED[name])


def absolute(text: str) -> Path:
    """An absolute path."""
    return Path(text).absolute()


SHARED: dict[str, dict[str, Any]] = {
    "docs": {"type": Path, "default": ROOT / "docs" / "results", "help": "folder of the page and its figures"},
    "quality": {
        "type": absolute,
        "default": QUALITY,
        "help": "folder of the vectors that the benchmark `quality` keeps",
    },
    "seeds": {"type": int, "default": 3, "help": "number of seeds (default 3)"},
}
"""Options that several benchmarks have."""


def count(text: str) -> int:
    """A number that may be written 1_000_000."""
    return int(text.replace("_", ""))


def clock() -> Callable[[str], None]:
    """A function that prints a line on standard error, the seconds since now before it."""
    began = time.monotonic()
    return lambda text: say(f"{time.monotonic() - began:6.0f} s  {text}")


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a piece of work returns, done in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


@contextmanager
def served(
    arguments: Sequence[str], ready: str, most: float = 60.0, folder: Path = ROOT, python: str = sys.executable
) -> Iterator[float]:
    """Run a server, `python -m` with these arguments, by the code below `folder`; yields the seconds until `ready`."""
    if answers(ready):
        sys.exit(f"{ready}: another server answers there")
    began = time.perf_counter()
    with subprocess.Popen([python, "-m", *arguments], cwd=folder, stdout=subprocess.DEVNULL) as server:
        try:
            while not answers(ready):
                if server.poll() is not None or time.perf_counter() - began > most:
                    sys.exit(f"python -m {' '.join(arguments)}: no answer within {most:g} s")
                time.sleep(0.02)
            yield time.perf_counter() - began
        finally:
            server.send_signal(signal.SIGINT)


def answers(url: str) -> bool:
    """Return True if a good answer comes from an address."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True
