"""Readiness is asked by anyone: it costs one search a second, however many ask."""

import asyncio

from rayhier.serve.http import api
from rayhier.serve.http.api import Readiness


def test_those_who_ask_together_share_a_search(monkeypatch):
    now, asked = [0.0], []
    monkeypatch.setattr(api.time, "monotonic", lambda: now[0])

    async def unavailable():
        asked.append(now[0])
        await asyncio.sleep(0)
        return [f"shards-{len(asked)}"]

    async def main():
        readiness = Readiness(unavailable)
        assert await asyncio.gather(*(readiness() for _ in range(50))) == [["shards-1"]] * 50
        now[0] = 0.9
        assert await readiness() == ["shards-1"]
        now[0] = 1.0
        assert await readiness() == ["shards-2"]

    asyncio.run(main())
    assert asked == [0.0, 1.0]
