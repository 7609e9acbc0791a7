"""`rayhier.serve.app:build`: the Serve application, one ingress and one named deployment for each shard group."""

from ray import serve
from ray.serve import Application
from ray.serve.config import BackpressureConfig

from rayhier.serve.args import ServeArgs
from rayhier.serve.ingress import Ingress, ShardRange
from rayhier.serve.shards import ShardGroup
from rayhier.serve.tokens import Tokens
from rayhier.serve.version import Version, split
from rayhier.spec import InputError
from rayhier.storage.leaf_map import Manifest

PASSED_ON = 10_000
"""Requests that Serve passes to an ingress at once: so many that it refuses them itself, in its errors' form."""
UNLIMITED = -1
RETRY = BackpressureConfig(retry_after_s=1)


def build(args: ServeArgs) -> Application:
    """The Serve application; InputError where the index, the token's file or a limit is wrong."""
    version, _, groups = check(args)
    most = args.limits.max_requests
    parts = [ShardRange(f"shards-{number}", leaves) for number, leaves in enumerate(groups)]
    scanning = [
        serve.deployment(
            ShardGroup,
            name=part.name,
            ray_actor_options={"num_cpus": 0.25},
            max_ongoing_requests=most,
            max_queued_requests=most,
            backpressure_config=RETRY,
        ).bind(version, part.leaves)
        for part in parts
    ]
    return serve.deployment(
        serve.ingress()(Ingress),
        name="ingress",
        ray_actor_options={"num_cpus": 0.5},
        max_ongoing_requests=PASSED_ON,
        max_queued_requests=UNLIMITED,
    ).bind(args, version, parts, *scanning)


def check(args: ServeArgs) -> tuple[Version, Manifest, list[range]]:
    """The version to serve, its manifest and each group's leaves; InputError where args are wrong. Needs no cluster."""
    Tokens(args.token_file, args.write_token_file)
    version, manifest = Version.newest(args.workdir)
    search = version.now.spec.search
    beam = search.leaves_visited(len(manifest.counts), sum(manifest.counts))
    for name, most, default in (("k", args.limits.max_k, search.k), ("beam", args.limits.max_beam, beam)):
        if default > most:
            raise InputError(f"limits.max_{name}: got {most}; allowed: at least {default}, the spec's search.{name}")
    return version, manifest, split(manifest.counts, args.shard_groups)
