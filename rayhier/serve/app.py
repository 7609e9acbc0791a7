"""The Ray Serve application: an ingress, a deployment for each shard group, and a Writer if changes are allowed.

`build` makes the application from the arguments of jobs/serve.yaml, which names this function as
`rayhier.serve.app:build`. `deploy` runs a config on the Ray cluster that the index's spec names, or on a local cluster.
"""

import asyncio
import contextlib
import io
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import ray
import yaml
from click import Abort
from fastapi import FastAPI
from pydantic import ValidationError
from ray import serve
from ray.exceptions import RayActorError
from ray.serve import Application as RayApplication
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatusOverview, ServeDeploySchema
from ray.util import metrics

from rayhier.executor.ray import join
from rayhier.progress import say
from rayhier.search.retrieve import RERANKER
from rayhier.search.segment.memory import settle
from rayhier.search.snapshot import Seen
from rayhier.serve.application import Application, check_index
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.changes import Rows, Written
from rayhier.serve.backend.cross_encoder import PING_SECONDS, CrossEncoderReplica
from rayhier.serve.backend.follower import HELD_SECONDS, WRITER, Following, Newest, Readers
from rayhier.serve.backend.handles import ScorerHandle, ShardHandle, WriterHandle
from rayhier.serve.backend.shards import ShardGroup
from rayhier.serve.backend.version import ShardRange, Version
from rayhier.serve.backend.writer import Writer
from rayhier.serve.config import HA_PROXY, ServeConfig, wrong
from rayhier.serve.errors import ApiError, LostError, invalid
from rayhier.serve.http.api import api
from rayhier.serve.http.tokens import Tokens
from rayhier.serve.metrics import COUNTERS, GAUGES, HISTOGRAMS
from rayhier.serve.threads import begin
from rayhier.spec import InputError
from rayhier.storage.leaf_map import Manifest

PASSED_ON = 10_000
"""Largest number of requests that Ray Serve passes to a replica at a time. The limit is high so that an ingress, not
Ray Serve, refuses requests, with errors in rayhier's form. A high limit also lets health checks pass while a replica
works."""
UNLIMITED = -1
CPUS_OF_TWO = 4
"""Least number of CPUs of a cluster on which two ingresses run by default. A smaller cluster gets one ingress."""
DRAINS = 5.0
"""Seconds, in addition to the time limit of a request, in which a stopped replica must finish its work."""
WRITER_LATE, WRITER_ALIVE = 2.0, 4.0
"""Seconds without an answer after which an ingress sends the Writer a health check, and most seconds for the check.
The Writer answers the call `newest` after a change, or after `HELD_SECONDS`."""
AGAIN_SECONDS = 0.5
"""Seconds between two attempts to take the Writer's lease, which an earlier Writer may still hold."""
POLL_SECONDS = 0.2
SAID_SECONDS = 10.0
T = TypeVar("T", Written, Newest)
log = logging.getLogger("ray.serve")


def build(args: ServeArgs) -> RayApplication:
    """Make the Ray Serve application. InputError if the index, a token file or a limit is wrong."""
    version, _, parts = check(args)
    drain, writes = args.limits.seconds + DRAINS, args.write_token_file is not None

    def deployment(kind: type, name: str, cpus: float, replicas: int = 1) -> serve.Deployment:
        return serve.deployment(
            kind,
            name=name,
            num_replicas=replicas,
            ray_actor_options={"num_cpus": cpus},
            max_ongoing_requests=PASSED_ON,
            max_queued_requests=UNLIMITED,
            graceful_shutdown_timeout_s=drain,
        )

    scanning = [
        deployment(ShardGroup, part.name, 0.25).bind(version, part.leaves, args.limits.seconds, follows=writes)
        for part in parts
    ]
    writer = reranker = None
    if writes:
        writer = deployment(WriterReplica, WRITER, 0.5).bind(args, version, parts, *scanning)
    if version.now.spec.search.reranking is not None:
        reranker = deployment(CrossEncoderReplica, RERANKER, 0.25).bind(version, args.reranker_threads)
    ingress = deployment(serve.ingress()(Ingress), "ingress", 0.5, args.ingresses or _ingresses())
    return ingress.bind(args, version, parts, reranker, writer, *scanning)


def _ingresses() -> int:
    return 2 if ray.is_initialized() and ray.cluster_resources().get("CPU", 0) >= CPUS_OF_TWO else 1


def check(args: ServeArgs) -> tuple[Version, Manifest, list[ShardRange]]:
    if not Tokens(args.token_file, args.write_token_file).required and os.environ.get(HA_PROXY) == "1":
        raise InputError(
            f"token_file: got none with {HA_PROXY}=1, whose proxy answers other machines for any "
            "http_options.host; allowed: a token file, or no such proxy"
        )
    return check_index(args)


class RayInstruments:
    """A store of metrics in Ray, which exports the metrics of all processes of a node."""

    def __init__(self) -> None:
        self._histograms = {
            name: metrics.Histogram(name, description=what, boundaries=list(bounds), tag_keys=tags)
            for name, (what, bounds, tags) in HISTOGRAMS.items()
        }
        self._counters = {
            name: metrics.Counter(name, description=what, tag_keys=tags) for name, (what, tags) in COUNTERS.items()
        }
        self._gauges = {name: metrics.Gauge(name, description=what) for name, what in GAUGES.items()}

    def observe(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        self._histograms[name].observe(value, dict(tags))

    def count(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        self._counters[name].inc(value, dict(tags))

    def set(self, name: str, value: float) -> None:
        self._gauges[name].set(value)


class Ingress:
    """Deployment that answers HTTP requests: encodes and routes queries, sends scans to shard groups, merges results.

    An ingress pins the version of the index that it serves. If there is a Writer, the ingress sends changes to it.
    """

    def __init__(
        self,
        args: ServeArgs,
        version: Version,
        parts: list[ShardRange],
        reranker: DeploymentHandle | None,
        writer: DeploymentHandle | None,
        *handles: DeploymentHandle,
    ) -> None:
        shards = shard_handles(args, parts, handles)
        scorer = None
        if reranker is not None:
            scorer = ScorerHandle(RERANKER, reranker, ping_seconds=PING_SECONDS, late_seconds=PING_SECONDS)
        if writer is not None:
            version, _ = Version.newest(version.workdir)
        self._served = Application(args, version, parts, shards, scorer, RayInstruments())
        self._served.see_tail()
        self._writer: WriterHandle | None = None
        if writer is not None:
            self._writer = WriterHandle(
                WRITER, writer, args.writes.seconds, late_seconds=WRITER_LATE, alive_seconds=WRITER_ALIVE
            )
            self._following = Following(self._served.follower, self._writer)
        settle()

    def __del__(self) -> None:
        """Release the pinned version of the index. Ray Serve calls this when it stops the replica."""
        if hasattr(self, "_served"):  # missing if opening failed
            self._served.close()

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Make the HTTP application. Ray Serve calls this once the model is loaded."""
        if self._writer is None:
            return api(self._served)
        return api(self._served, self._writer, self._following, self._beside)

    @contextlib.asynccontextmanager
    async def _beside(self, _: FastAPI) -> AsyncIterator[None]:
        following = asyncio.create_task(self._following.run())
        yield
        following.cancel()


class WriterReplica:
    """Deployment that writes changes to an index. A change is answered once every ingress sees it."""

    def __init__(self, args: ServeArgs, version: Version, parts: list[ShardRange], *handles: DeploymentHandle) -> None:
        shards, newest = shard_handles(args, parts, handles), Version.newest(version.workdir)[0]
        self._served = Application(args, newest, parts, shards, None, RayInstruments())
        self._begun: tuple[Writer, Readers] | None = None
        self._work: asyncio.Task[None] | None = None

    def __del__(self) -> None:
        """Give back the lease, and release the pinned version. Ray Serve calls this when it stops the replica."""
        begun = getattr(self, "_begun", None)
        if begun is not None:
            begun[0].close()
        if hasattr(self, "_served"):  # missing if opening failed
            self._served.close()

    async def put(self, documents: Rows, key: str, body: str, upsert: bool) -> Written | ApiError:
        return await self._answered(lambda writer: writer.put(documents, key, body, upsert=upsert))

    async def delete(self, ids: Sequence[str], key: str, body: str) -> Written | ApiError:
        return await self._answered(lambda writer: writer.delete(ids, key, body))

    async def rollback(self, number: int, key: str) -> Newest | ApiError:
        return await self._answered(lambda writer: writer.publisher.rollback(number, key))

    async def newest(self, reader: str, seen: Seen) -> Newest:
        """Return the newest state to a reader: once the state differs from `seen`, or after `HELD_SECONDS`."""
        _, readers = self._writing()
        readers.called(reader, seen)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HELD_SECONDS):
                while self._served.follower.seen == seen:
                    await self._served.engine.changed()
        return self._served.follower.newest

    async def ping(self) -> None:
        self._writing()

    async def alive(self) -> None:
        """Answer a health check at once. The answer shows that the replica's process lives."""

    async def check_health(self) -> None:
        """Start to write, or start again if writing ended. Ray Serve calls this regularly."""
        self._start()

    def _start(self) -> None:
        if self._work is None or self._work.done():
            self._work = begin(self._write())

    async def _write(self) -> None:
        """Take the lease when no other Writer has it, then write changes to leaf files in the background."""
        while self._begun is None:
            try:
                self._begun = await self._begin()
            except (InputError, LostError, OSError) as error:
                log.warning("cannot write yet: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
        await self._begun[0].publisher.fold_forever()

    async def _begin(self) -> tuple[Writer, Readers]:
        writer, readers = await asyncio.to_thread(self._served.writer), Readers()
        try:
            await writer.begin()
        except BaseException:
            writer.close()
            raise
        return writer, readers

    def _writing(self) -> tuple[Writer, Readers]:
        """Return the Writer and its readers (the ingresses). RuntimeError if the Writer has not begun."""
        self._start()
        if self._begun is None:
            raise RuntimeError("the Writer is starting")
        return self._begun

    async def _answered(self, change: Callable[[Writer], Awaitable[T]]) -> T | ApiError:
        """Make a change. Returns its outcome once all ingresses see the change, or the error that refuses it."""
        writer, readers = self._writing()
        try:
            outcome = await change(writer)
        except ApiError as error:
            return error
        except InputError as error:
            return invalid(str(error))
        await readers.see(outcome.seen)
        return outcome


def shard_handles(
    args: ServeArgs, parts: Sequence[ShardRange], handles: Sequence[DeploymentHandle]
) -> list[ShardHandle]:
    return [ShardHandle(part.name, handle, args.shard_seconds) for part, handle in zip(parts, handles, strict=True)]


def checked(local: ServeConfig) -> ServeConfig:
    """Return the config of a server on this machine. InputError if Ray Serve or the index does not allow the config."""
    try:
        ServeDeploySchema.model_validate(local.config)
    except ValidationError as error:
        raise wrong(local.template, error) from None
    check(local.args)
    return local


def deploy(local: ServeConfig) -> None:
    """Deploy a config and wait until all deployments run. If a deployment fails, stop all and raise InputError."""
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    say("  joining Ray")
    join(local.spec)
    if serve.status().proxies:
        raise InputError(
            "Serve already runs in this cluster. Stop it with `serve shutdown`, or add to it with `serve deploy`"
        )
    say("  starting Serve")
    try:
        _run(local)
        _wait(local.config["applications"][0]["name"])
    except BaseException:
        serve.shutdown()
        raise


def _run(local: ServeConfig) -> None:
    """Pass the config to Ray Serve. The output of Ray Serve's command is printed only if the command fails."""
    from ray.serve.scripts import cli  # replicas do without it

    with tempfile.TemporaryDirectory(prefix="rayhier-serve-") as folder:
        copy = Path(folder) / "serve.yaml"
        copy.write_text(yaml.safe_dump(local.config, sort_keys=False))
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                cli.main(["run", "--non-blocking", str(copy)], standalone_mode=False)
        except SystemExit:  # raised after any error, which is printed
            raise InputError(f"not deployed: {_reason([output.getvalue()])}") from None
        except RayActorError:  # Ray Serve ends its own actors that do not start within seconds
            raise InputError("not deployed: Serve did not start in time. Is this machine busy? Start again") from None
        except Abort:  # raised by the command on Ctrl-C
            raise KeyboardInterrupt from None


def _wait(name: str) -> None:
    """Wait until an application runs, and print each deployment that is ready. InputError if the application fails."""
    ready, began = set[str](), time.monotonic()
    spoken = began
    while True:
        app: ApplicationStatusOverview | None = serve.status().applications.get(name)
        if app is None or app.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            messages = [] if app is None else [app.message, *(part.message for part in app.deployments.values())]
            raise InputError(f"not deployed: {_reason(messages)}")
        healthy = {deployment for deployment, part in app.deployments.items() if part.status == "HEALTHY"}
        for deployment in sorted(healthy - ready):
            ready.add(deployment)
            spoken = time.monotonic()
            say(f"  {deployment} is ready ({len(ready)} of {len(app.deployments)})")
        if app.status == "RUNNING":
            return
        if time.monotonic() - spoken >= SAID_SECONDS:
            spoken = time.monotonic()
            say(f"  starting for {spoken - began:.0f} s: {', '.join(sorted(set(app.deployments) - ready)) or name}")
        time.sleep(POLL_SECONDS)


def _reason(messages: list[str]) -> str:
    """Return why a deployment failed: the message of its InputError, or else the last lines of `messages`."""
    lines = [line for message in messages for line in message.splitlines() if line.strip()]
    errors = [line.partition("InputError: ")[2] for line in lines if "InputError: " in line]
    return errors[-1] if errors else "\n".join(lines[-5:])
