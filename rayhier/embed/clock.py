"""How much of its time an encoder is at work, and how fast: what a GPU is paid for."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rayhier.embed.encode import TextEncoder


class Clock:
    """Kept by an actor: time at work beside all time, waiting for the next part included."""

    def __init__(self, encoder: TextEncoder | None) -> None:
        self._encoder, self._seen = encoder, 0
        self._since, self._worked = time.monotonic(), 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Whatever is done in here is work."""
        began = time.monotonic()
        yield
        self._worked += time.monotonic() - began

    def lap(self) -> dict[str, float]:
        """Since the last lap: seconds at work, seconds in all, tokens encoded; and the encoder's parameters."""
        now, tokens, parameters = time.monotonic(), 0, 0
        if self._encoder is not None:
            tokens, parameters = self._encoder.seen - self._seen, self._encoder.parameters
        found = {"worked": self._worked, "passed": now - self._since, "tokens": tokens, "parameters": parameters}
        self._since, self._worked, self._seen = now, 0.0, self._seen + tokens
        return found


@dataclass
class Utilisation:
    """What the laps of all actors come to."""

    tokens: float = 0
    worked: float = 0.0
    passed: float = 0.0
    operations: float = 0.0
    """Floating-point: two a parameter and token."""

    def note(self, lap: dict[str, float]) -> None:
        """One actor's lap."""
        self.tokens += lap["tokens"]
        self.worked += lap["worked"]
        self.passed += lap["passed"]
        self.operations += 2 * lap["parameters"] * lap["tokens"]

    def __str__(self) -> str:
        """For people."""
        worked = max(self.worked, 1e-9)
        return (
            f"  encoders: {self.tokens:,.0f} tokens, at work {self.worked / max(self.passed, 1e-9):.0%} of their time, "
            f"then {self.tokens / worked:,.0f} tokens/s and {self.operations / worked / 1e12:.2f} TFLOP/s each"
        )
