"""Keep rates of stages that runs measured on this machine in one small file of the cache. Plans read the file."""

import contextlib
import json
import math

from rayhier.progress import say
from rayhier.storage import files
from rayhier.storage.cache import home

FILE = "rates.json"
MOST, MOST_BYTES = 200, 100_000
"""Largest number of rates that the file keeps (the newest), and most bytes that are read from the file."""


def load() -> dict[str, float]:
    """Read rates that runs measured, description -> rate. If the file is damaged, warn and return no rates."""
    path = home() / FILE
    try:
        with path.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError:
        return {}
    with contextlib.suppress(ValueError, RecursionError):
        rates = json.loads(data) if len(data) <= MOST_BYTES else None
        if isinstance(rates, dict) and all(_is_rate(rate) for rate in rates.values()):
            return rates
    say(f"warning: {path}: holds no rates that rayhier wrote, so it is ignored. The next run writes it again")
    return {}


def note(of: str, rate: float) -> None:
    """Write a stage's rate to this machine's cache, newest last. If the cache cannot be written, do nothing."""
    rates = {name: known for name, known in load().items() if name != of} | {of: rate}
    with contextlib.suppress(OSError):
        files.write_json(home() / FILE, dict(list(rates.items())[-MOST:]))


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
