"""`rayhier.serve.app:build`: makes the Ray Serve application, an ingress and a deployment for each shard group."""

import os

import ray
from ray import serve
from ray.serve import Application

from rayhier.search.retrieve import RERANKER
from rayhier.serve.application import check_index
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.cross_encoder import CrossEncoderReplica
from rayhier.serve.backend.following import WRITER
from rayhier.serve.backend.groups import ShardRange
from rayhier.serve.backend.shards import ShardGroup
from rayhier.serve.backend.version import Version
from rayhier.serve.config import HA_PROXY
from rayhier.serve.http.tokens import Tokens
from rayhier.serve.ingress import Ingress
from rayhier.serve.writer import WriterReplica
from rayhier.spec import InputError
from rayhier.storage.leaf_map import Manifest

PASSED_ON = 10_000
"""Requests that Ray Serve passes to a replica at a time: an ingress refuses requests itself, with errors in its own
form, and a request for a sign of life must not wait behind a replica's work."""
UNLIMITED = -1
CPUS_OF_TWO = 4
"""Least number of CPUs of a cluster that runs two ingresses."""
DRAINS = 5.0
"""Seconds, beyond those of a request, in which a stopped replica may finish its work."""


def build(args: ServeArgs) -> Application:
    """Make the Ray Serve application. InputError where the index, the token's file or a limit is wrong."""
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
            f"token_file: got none with {HA_PROXY}=1, whose proxy answers other machines whatever "
            "http_options.host says; allowed: a file with one line, or no such proxy"
        )
    return check_index(args)
