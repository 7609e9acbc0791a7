"""Bare Serve applications of the same hops: the cost of Serve, FastAPI and the encoder, without rayhier.

An ingress takes the same bodies, calls two deployments, and answers as many bytes. For texts, it encodes the text
first, as the served index does.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from rayhier.serve.backend.version import Version

app = FastAPI()


class Hop:
    """Answers an array with as many bytes as a shard group's results have."""

    async def work(self, _: Any) -> bytes:
        """As many bytes as results of ten documents take."""
        return bytes(10_000)


@serve.ingress(app)
class Bare:
    """Takes a question, encodes it where there is an encoder, asks two deployments, answers."""

    def __init__(self, workdir: str | None, one: Any, two: Any) -> None:
        self.hops, self.encoder = (one, two), None
        self.thread = ThreadPoolExecutor(1)
        torch.set_num_threads(1)
        if workdir is not None:
            self.encoder = Version.newest(workdir)[0].model().load()

    @app.post("/v1/search")
    async def search(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer with as much text as a search does."""
        if self.encoder is not None and "query" in asked:
            loop = asyncio.get_running_loop()
            encoded = await loop.run_in_executor(self.thread, self.encoder.encode, [asked["query"]])
            query = encoded.numpy
        else:
            query = np.array([asked["vector"]], np.float32)
        answers = await asyncio.gather(*(hop.work.remote(query) for hop in self.hops))
        return {"results": [{"text": "x" * (len(answer) // 2)} for answer in answers], "partial": False}


def build(args: dict[str, Any]) -> Application:
    """The application; `workdir` names the index whose encoder it has, null: none."""
    hops = [
        serve.deployment(
            Hop, name=f"hop-{number}", max_ongoing_requests=64, ray_actor_options={"num_cpus": 0.25}
        ).bind()
        for number in range(2)
    ]
    ingress = serve.deployment(Bare, name="bare", max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0.5})
    return ingress.bind(args.get("workdir"), *hops)
