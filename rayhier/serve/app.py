"""`rayhier.serve.app:build`: the Serve application, one ingress and one named deployment for each shard group."""

import os

from ray import serve
from ray.serve import Application

from rayhier.serve.args import ServeArgs
from rayhier.serve.cross_encoder import CrossEncoderReplica
from rayhier.serve.ingress import Ingress, ShardRange
from rayhier.serve.reranking import RERANKER
from rayhier.serve.shards import ShardGroup
from rayhier.serve.tokens import Tokens
from rayhier.serve.version import Version, split
from rayhier.spec import InputError
from rayhier.spec.search import NoRerank
from rayhier.storage.leaf_map import Manifest

PASSED_ON = 10_000
"""Requests that Serve passes to a replica at once: an ingress refuses them itself, in its errors' form, and what others
are asked for a sign of life must not wait behind their work."""
UNLIMITED = -1
DRAINS = 5.0
"""Seconds beyond those of a request that a replica has to finish what it has begun, before Serve ends it."""
KEYS = {
    "k": "search.k",
    "beam": "search.beam",
    "budget": "search.rerank.budget",
    "calls": "search.rerank.budget",
    "pool": "search.rerank.pool",
}
"""Keys of the spec whose values requests have by default, by the names of their limits."""
HA_PROXY = "RAY_SERVE_ENABLE_HA_PROXY"
"""Environment variable that puts HAProxy before the ingresses, which listens on every address of the machine."""


def build(args: ServeArgs) -> Application:
    """The Serve application; InputError where the index, the token's file or a limit is wrong."""
    version, _, groups = check(args)
    drain = args.limits.seconds + DRAINS
    parts = [ShardRange(f"shards-{number}", leaves) for number, leaves in enumerate(groups)]
    scanning = [
        serve.deployment(
            ShardGroup,
            name=part.name,
            ray_actor_options={"num_cpus": 0.25},
            max_ongoing_requests=PASSED_ON,
            max_queued_requests=UNLIMITED,
            graceful_shutdown_timeout_s=drain,
        ).bind(version, part.leaves)
        for part in parts
    ]
    reranker = None
    if version.now.spec.search.rerank.type != "none":
        reranker = serve.deployment(
            CrossEncoderReplica,
            name=RERANKER,
            ray_actor_options={"num_cpus": 0.25},
            max_ongoing_requests=PASSED_ON,
            max_queued_requests=UNLIMITED,
            graceful_shutdown_timeout_s=drain,
        ).bind(version, args.reranker_threads)
    return serve.deployment(
        serve.ingress()(Ingress),
        name="ingress",
        ray_actor_options={"num_cpus": 0.5},
        max_ongoing_requests=PASSED_ON,
        max_queued_requests=UNLIMITED,
        graceful_shutdown_timeout_s=drain,
    ).bind(args, version, parts, reranker, *scanning)


def check(args: ServeArgs) -> tuple[Version, Manifest, list[range]]:
    """The version to serve, its manifest and each group's leaves; InputError where args are wrong. Needs no cluster."""
    if not Tokens(args.token_file, args.write_token_file).required and os.environ.get(HA_PROXY) == "1":
        raise InputError(
            f"token_file: got none with {HA_PROXY}=1, whose proxy answers other machines whatever "
            "http_options.host says; allowed: a file with one line, or no such proxy"
        )
    version, manifest = Version.newest(args.workdir)
    search = version.now.spec.search
    rows, rerank = sum(manifest.counts), search.rerank
    reads, pool = (0, 0) if isinstance(rerank, NoRerank) else (rerank.budget, rerank.pooled(rows))
    groups = split(manifest.counts, args.shard_groups)
    if reads and search.mode == "hybrid":
        pool += min(search.fusion.listed(search.k) * len(groups), rows)  # what BM25 lists beside the leaf scan
    beam = search.leaves_visited(len(manifest.counts), rows)
    defaults = {"k": search.k, "beam": beam, "budget": reads, "calls": reads, "pool": pool}
    for name, default in defaults.items():
        most = getattr(args.limits, f"max_{name}")
        if default > most:
            raise InputError(f"limits.max_{name}: got {most}; allowed: at least {default}, the spec's {KEYS[name]}")
    for name, given in (("shard_seconds", args.shard_seconds), ("reranker_seconds", args.reranker_seconds)):
        if given >= args.limits.seconds:
            less = f"less than limits.seconds, {args.limits.seconds:g}, so that an answer without it is in time"
            raise InputError(f"{name}: got {given:g}; allowed: {less}")
    return version, manifest, groups
