"""Requests over kept connections, at a fixed concurrency or a fixed rate, and the result of each."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from rayhier.arrays import Values
from rayhier.serve.http.bodies import ErrorBody

TOKEN = "of-the-benchmark"
"""What every request carries."""
MOST = 512
"""Requests that are on their way at once, at most."""


@dataclass(frozen=True)
class Outcome:
    """One request: when it was sent, its status (0: no answer), its seconds, whether its answer was whole and right."""

    sent: float
    status: int
    seconds: float
    whole: bool = False
    retry: bool = False
    """Whether the answer had Retry-After."""
    code: str | None = None
    """Code of the error, where the answer is one as documented."""
    lost: tuple[str, ...] = ()
    """What an answer says it lacks that says it is partial."""

    def unavailable(self, code: str) -> bool:
        """Whether it is the documented 503 of a code."""
        return self.status == 503 and self.retry and self.code == code


@dataclass(frozen=True)
class Load:
    """Outcomes of the requests that were sent, how long the run took, and how many were to be sent."""

    outcomes: list[Outcome]
    seconds: float
    asked: int

    @property
    def unsent(self) -> int:
        """Requests that found no free connection."""
        return self.asked - len(self.outcomes)

    @property
    def sent_rate(self) -> float:
        """Requests a second that were sent, from the first to the last."""
        times = [one.sent for one in self.outcomes]
        return (len(times) - 1) / (max(times) - min(times)) if len(times) > 1 else 0.0

    def answered(self) -> list[Outcome]:
        """Requests that were answered 200."""
        return [one for one in self.outcomes if one.status == 200]

    def refused(self) -> list[Outcome]:
        """Requests that were not."""
        return [one for one in self.outcomes if one.status != 200]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.answered()) / self.seconds

    def ms(self, share: float, of: Sequence[Outcome] | None = None) -> float:
        """Milliseconds below which a share of the answers took; NaN without any."""
        seconds: Values = np.array([one.seconds for one in (self.answered() if of is None else of)])
        return float(1e3 * np.quantile(seconds, share)) if len(seconds) else float("nan")


class Connection:
    """One kept connection to a server on this machine."""

    def __init__(self, port: int, path: str) -> None:
        self.port, self.path = port, path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer; opens the connection anew where it was closed."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        head = f"POST {self.path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        head += f"Authorization: Bearer {TOKEN}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return int(lines[0].split()[1]), headers, content

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


Check = Callable[[dict[str, Any]], bool]
"""Whether an answer is right."""


def error_code(content: bytes) -> str | None:
    """The code of an error as the API documents errors; None where the body is anything else."""
    try:
        return ErrorBody.model_validate_json(content).error.code
    except ValidationError:
        return None


async def _one(connection: Connection, body: bytes, check: Check = lambda _: True) -> Outcome:
    began = time.perf_counter()
    try:
        async with asyncio.timeout(60):
            status, headers, content = await connection.ask(body)
        seconds = time.perf_counter() - began
        answer: dict[str, Any] = json.loads(content) if status == 200 else {"partial": False}
    except (OSError, EOFError, TimeoutError, ValueError):
        connection.close()
        return Outcome(began, 0, time.perf_counter() - began)
    whole = status == 200 and not answer["partial"] and check(answer)
    lost = tuple(answer["lost"]) if answer["partial"] else ()
    code = None if status == 200 else error_code(content)
    return Outcome(began, status, seconds, whole, "retry-after" in headers, code, lost)


def at_a_time(port: int, path: str, bodies: Sequence[bytes], clients: int) -> Load:
    """Send every body once, by so many clients that each wait for their answer."""

    async def work() -> Load:
        left, outcomes = iter(bodies), list[Outcome]()

        async def client() -> None:
            connection = Connection(port, path)
            for body in left:
                outcomes.append(await _one(connection, body))
            connection.close()

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        return Load(outcomes, time.perf_counter() - began, len(bodies))

    return asyncio.run(work())


def a_second(
    port: int, path: str, bodies: Sequence[bytes], rate: float, seconds: float, checks: Sequence[Check] = ()
) -> Load:
    """Send bodies, over and over, at a rate, whatever is answered; at most 512 are on their way at once.

    A request that finds all connections taken is not sent. `checks` say of each body's answer whether it is right.
    """

    async def work() -> Load:
        free = [Connection(port, path) for _ in range(MOST)]
        outcomes, tasks = list[Outcome](), set[asyncio.Task[None]]()

        async def send(connection: Connection, number: int) -> None:
            at = number % len(bodies)
            outcomes.append(await _one(connection, bodies[at], *checks[at : at + 1]))
            free.append(connection)

        began, asked = time.perf_counter(), int(rate * seconds)
        for number in range(asked):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            if free:
                task = asyncio.create_task(send(free.pop(), number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        taken = time.perf_counter() - began
        for connection in free:
            connection.close()
        return Load(outcomes, taken, asked)

    return asyncio.run(work())
