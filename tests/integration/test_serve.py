"""A tiny index served from the shipped config: it answers as offline search does, and names what is lost."""

import shutil
from pathlib import Path

import pytest
import ray
from ray import serve
from ray.util import list_named_actors

from rayhier.search.snapshot import Snapshot
from rayhier.serve.app import checked, deploy
from rayhier.serve.client import Client
from rayhier.serve.config import ServeConfig, look
from rayhier.serve.errors import ApiError
from rayhier.spec import InputError
from rayhier.storage import current, pins

from .conformance import TOKEN, conforms, writes
from .conftest import SHIPPED

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(600)]

MOST_TRIES = 1_000


@pytest.fixture
def local(configured):
    return configured("shard_seconds: 8")


@pytest.mark.slow
def test_served(local, work, built, cache):
    deploy(local)
    searcher, client = Snapshot.open(work), Client(local.url, TOKEN)
    conforms(local.url, searcher, built, ["shards-0", "shards-1"])
    assert pins.held(current.artifact(work, current.read(work), "index").root) == {1}
    writes(local.url, searcher)
    _a_second_server_is_refused(local, work)
    damaged = _loses_a_shard(client, searcher, work, cache)
    serve.shutdown()
    with pytest.raises(InputError, match=rf"not deployed: .*{damaged.name}: (SHA-256|cannot be read)"):
        deploy(local)


def _a_second_server_is_refused(local: ServeConfig, work: Path) -> None:
    with pytest.raises(InputError, match="another process listens"):
        checked(look(SHIPPED, str(work), None, local.port))
    with pytest.raises(InputError, match="Serve already runs in this cluster"):
        deploy(local)


def _loses_a_shard(client: Client, searcher: Snapshot, work: Path, cache: Path) -> Path:
    """Kill the replica of a group that cannot come back: its file is no longer what was published, nor kept here."""
    whole = client.search("river stone", 1_000, searcher.model.router.n_leaves)
    assert not whole.partial
    damaged = max((work / "index").rglob("data/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    shutil.rmtree(cache / "lists")
    names = [actor["name"] for actor in list_named_actors(all_namespaces=True) if "#shards-1#" in actor["name"]]
    for name in names:
        ray.kill(ray.get_actor(name, namespace="serve"))
    for _ in range(MOST_TRIES):
        part = client.search("river stone", 1_000, searcher.model.router.n_leaves)
        if part.partial:
            break
    assert (part.partial, part.lost) == (True, ["shards-1"])
    assert 0 < part.visited.documents <= len(part.results) < len(whole.results) == whole.visited.documents
    assert {result.id for result in part.results} < {result.id for result in whole.results}
    with pytest.raises(ApiError, match="strict: shards-1 did not answer") as caught:
        client.search("river stone", 10, searcher.model.router.n_leaves, strict=True)
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
    return damaged
