"""`rayhier.serve.app:build`: one ingress, one named deployment a group of shards."""

from ray import serve
from ray.serve import Application
from ray.serve.config import BackpressureConfig

from rayhier.serve.args import ServeArgs, read_token
from rayhier.serve.ingress import Ingress, ShardRange
from rayhier.serve.shards import ShardGroup
from rayhier.serve.version import Version, split
from rayhier.spec import InputError
from rayhier.storage.leaf_map import Manifest

HEADROOM = 4
"""Times as many requests as an ingress works on reach it, so that it, not Serve, says that it is full."""
RETRY = BackpressureConfig(retry_after_s=1)


def build(args: ServeArgs) -> Application:
    """The whole application; InputError where the index, the token or a limit is not as it must be."""
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
        max_ongoing_requests=HEADROOM * most,
        max_queued_requests=most,
        backpressure_config=RETRY,
    ).bind(args, version, parts, *scanning)


def check(args: ServeArgs) -> tuple[Version, Manifest, list[range]]:
    """What will be served and how its leaves are grouped; InputError where that cannot be. Needs no cluster."""
    if args.token_file is not None:
        read_token(args.token_file)
    version, manifest = Version.newest(args.workdir)
    search = version.now.spec.search
    beam = search.leaves_visited(len(manifest.counts), sum(manifest.counts))
    for name, most, default in (("k", args.limits.max_k, search.k), ("beam", args.limits.max_beam, beam)):
        if default > most:
            raise InputError(f"limits.max_{name}: got {most}; allowed: from {default}, the spec's search.{name}")
    return version, manifest, split(manifest.counts, args.shard_groups)
