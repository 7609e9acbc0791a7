"""Measure encoding processes: the share of time in which they work, and their speed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rayhier.embed.encode import TextEncoder


class Clock:
    def __init__(self, encoder: TextEncoder | None) -> None:
        self._encoder, self._seen = encoder, 0
        self._since, self._worked = time.monotonic(), 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._worked += time.monotonic() - began

    def lap(self) -> dict[str, float]:
        now, tokens, parameters = time.monotonic(), 0, 0
        if self._encoder is not None:
            tokens, parameters = self._encoder.seen - self._seen, self._encoder.parameters
        counts = {"worked": self._worked, "passed": now - self._since, "tokens": tokens, "parameters": parameters}
        self._since, self._worked, self._seen = now, 0.0, self._seen + tokens
        return counts


@dataclass
class Utilisation:
    """Work of all encoding processes, summed: tokens, seconds at work, seconds in all, operations."""

    tokens: float = 0
    worked: float = 0.0
    passed: float = 0.0
    operations: float = 0.0
    """Floating-point operations of the encoders: two for each parameter and token."""

    def note(self, lap: dict[str, float]) -> None:
        self.tokens += lap["tokens"]
        self.worked += lap["worked"]
        self.passed += lap["passed"]
        self.operations += 2 * lap["parameters"] * lap["tokens"]

    def __str__(self) -> str:
        worked = max(self.worked, 1e-9)
        return (
            f"  encoders: {self.tokens:,.0f} tokens, at work {self.worked / max(self.passed, 1e-9):.0%} of their time, "
            f"while at work {self.tokens / worked:,.0f} tokens/s and {self.operations / worked / 1e12:.2f} TFLOP/s each"
        )
