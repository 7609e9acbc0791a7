"""The deployment that takes requests: the model, and a handle for each shard group."""

from collections.abc import Mapping

from fastapi import FastAPI
from ray.serve.handle import DeploymentHandle
from ray.util import metrics

from rayhier.search.retrieve import RERANKER
from rayhier.serve.application import ServedIndex
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.groups import ShardRange
from rayhier.serve.backend.handles import DeploymentClient, ScorerHandle, ShardHandle
from rayhier.serve.backend.version import Version
from rayhier.serve.metrics import COUNTERS, HISTOGRAMS, VERSION

RERANKER_PING = 5.0
"""Seconds that the cross-encoder may take for the pairs that it is at work on."""


class RayInstruments:
    """Metrics through Ray, which exports those of all processes of a node."""

    def __init__(self) -> None:
        self._histograms = {
            name: metrics.Histogram(name, description=what, boundaries=list(bounds), tag_keys=tags)
            for name, (what, bounds, tags) in HISTOGRAMS.items()
        }
        self._counters = {
            name: metrics.Counter(name, description=what, tag_keys=tags) for name, (what, tags) in COUNTERS.items()
        }
        self._gauges = {VERSION: metrics.Gauge(VERSION, description="Version of the index that is served.")}

    def observe(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Add a value to a histogram."""
        self._histograms[name].observe(value, dict(tags))

    def count(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Add to a counter."""
        self._counters[name].inc(value, dict(tags))

    def set(self, name: str, value: float) -> None:
        """Set a gauge."""
        self._gauges[name].set(value)


class Ingress:
    """Answers HTTP requests: encodes, routes, has the groups scan, merges. Keeps its version from vacuum."""

    def __init__(
        self,
        args: ServeArgs,
        version: Version,
        parts: list[ShardRange],
        reranker: DeploymentHandle | None,
        *handles: DeploymentHandle,
    ) -> None:
        clients = [DeploymentClient(part.name, handle) for part, handle in zip(parts, handles, strict=True)]
        shards = [ShardHandle(client, args.shard_seconds) for client in clients]
        scorer = None
        if reranker is not None:
            scorer = ScorerHandle(DeploymentClient(RERANKER, reranker, RERANKER_PING, RERANKER_PING))
        self._served = ServedIndex(args, version, list(zip(parts, shards, strict=True)), scorer, RayInstruments())

    def __del__(self) -> None:
        """Called by Serve when it stops the replica: release the version, which vacuum may then remove."""
        if hasattr(self, "_served"):  # else it could not be opened
            self._served.close()

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve once the model is loaded: the HTTP application."""
        return self._served.app()
