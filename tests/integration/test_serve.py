"""A tiny index served from the shipped config: it answers as offline search does, and names what is lost."""

import http.client
import json
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray
from ray import serve
from ray.util import list_named_actors

from rayhier.search.answer import Answer
from rayhier.search.searcher import Searcher
from rayhier.serve.client import Client
from rayhier.serve.config import ServeConfig
from rayhier.serve.errors import ApiError
from rayhier.serve.http.models import AnswerBody
from rayhier.serve.local import deploy, prepare
from rayhier.spec import InputError
from rayhier.storage import current, pins

pytestmark = pytest.mark.usefixtures("cluster")

SHIPPED = Path(__file__).parents[2] / "jobs" / "serve.yaml"
TOKEN = "sesame-1"
MOST_TRIES = 1_000


@pytest.fixture
def local(work: Path, tmp_path: Path) -> Iterator[ServeConfig]:
    (tmp_path / "token").write_text(TOKEN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "serve.yaml"
    patient = "shard_seconds: 2\n      limits: {queue_seconds: 30}"  # tests of other processes make this one wait
    config.write_text(SHIPPED.read_text().replace("token_file: null", patient))
    yield prepare(config, str(work), str(tmp_path / "token"), port)
    serve.shutdown()


def test_served(local: ServeConfig, work: Path, built: Path, cache: Path) -> None:
    deploy(local)
    searcher, client = Searcher.open(work), Client(local.url, TOKEN)
    _says_what_it_serves(client, searcher)
    assert pins.held(current.artifact(work, current.read(work), "index").root) == {1}
    _answers_as_offline_search_does(client, searcher, _texts(built / "corpus"))
    _refuses(local)
    _a_second_server_is_refused(local, work)
    damaged = _loses_a_shard(client, searcher, work, cache)
    serve.shutdown()
    with pytest.raises(InputError, match=rf"not deployed: .*{damaged.name}: SHA-256"):
        deploy(local)


def _texts(corpus: Path) -> list[str]:
    """Every query, and documents until there are 200."""
    files = [(corpus / f"{name}.jsonl").read_text() for name in ("queries", "corpus")]
    return [json.loads(line)["text"] for file in files for line in file.splitlines()][:200]


def _says_what_it_serves(client: Client, searcher: Searcher) -> None:
    index = client.index()
    assert (index.name, index.version, index.leaves_per_document, index.shards) == ("tiny", 1, 2, 3)
    assert index.groups == ["shards-0", "shards-1"]
    assert index.documents == searcher.manifest.documents
    assert (index.leaves, index.dimension) == (searcher.model.router.n_leaves, searcher.model.text_encoder.dimension)
    assert (index.similarity, index.precision) == (searcher.model.spec.encoder.similarity, "float32")
    assert (index.k, index.beam) == (searcher.model.spec.search.k, searcher.model.spec.search.beam)


def _answers_as_offline_search_does(client: Client, searcher: Searcher, texts: list[str]) -> None:
    offline = searcher.search(texts, 10, 3)
    with ThreadPoolExecutor(8) as threads:
        for served, expected in zip(threads.map(lambda text: client.search(text, 10, 3), texts), offline, strict=True):
            _same(served, expected, 1e-5)
            assert set(served.ms) == {"queue", "encode", "route", "scan", "total"}
    vectors = searcher.model.text_encoder.encode(texts)
    offline = searcher.search_vectors(vectors, 10, 3)
    for start in range(0, 200, 50):
        batch = client.search_batch(vectors[start : start + 50].tolist(), 10, 3).answers
        for served, expected in zip(batch, offline[start : start + 50], strict=True):
            _same(served, expected, 1e-6)
    alone = client.search(vectors[0].tolist(), 10, 3, strict=True)
    _same(alone, offline[0], 1e-6)
    for row, text in enumerate(texts[:20]):
        route = client.route(text, 3)
        assert [leaf.leaf for leaf in route.leaves] == offline[row].leaves
        densities = [leaf.log_density for leaf in route.leaves if leaf.log_density is not None]
        assert (route.order, densities) == ("density", sorted(densities, reverse=True))
        assert all(0 >= leaf.log_prob >= (leaf.log_density or 0) for leaf in route.leaves)


def _same(served: AnswerBody, expected: Answer, tolerance: float) -> None:
    """Ids in their order but for ties, scores, and what was visited."""
    assert (served.partial, served.lost) == (False, [])
    assert served.visited.leaves == expected.leaves
    assert (served.visited.documents, served.visited.fraction) == (expected.documents, expected.fraction)
    scores = [hit.score for hit in expected.hits]
    assert [result.score for result in served.results] == pytest.approx(scores, abs=tolerance)
    for place, (result, hit) in enumerate(zip(served.results, expected.hits, strict=True)):
        near = [other for other in scores if abs(other - hit.score) <= 2 * tolerance]
        assert result.id == hit.id or len(near) > 1 or place == len(scores) - 1
        assert result.leaf in expected.leaves
        if result.id == hit.id:
            assert (result.title, result.text) == (hit.title, hit.text)


def _refuses(local: ServeConfig) -> None:
    """What Serve's proxy could spoil: headers, statuses and bodies of errors on their way through it."""
    for token in (None, "sesame-2"):
        with pytest.raises(ApiError) as caught:
            Client(local.url, token).search("oak")
        assert (caught.value.status, caught.value.code) == (401, "unauthorized")
    client = Client(local.url, TOKEN)
    with pytest.raises(ApiError, match="k: got 1001; allowed: 1 to 1000"):
        client.search("oak", 1_001)
    with pytest.raises(ApiError, match="queries: got 65; allowed: 1 to 64"):
        client.search_batch(["oak"] * 65)
    head = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    assert _raw(local, "POST", "/v1/search", b'{"query": "' + b"x" * 4_000_000 + b'"}', head) == (413, "too_large")
    assert _raw(local, "GET", "/v1/search", b"", head) == (405, "method_not_allowed")
    assert _raw(local, "GET", "/nowhere", b"", head) == (404, "not_found")
    assert _raw(local, "POST", "/v1/search", b'{"vector": [NaN]}', head) == (422, "invalid")


def _raw(local: ServeConfig, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    connection = http.client.HTTPConnection(local.host, local.port, timeout=30)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    code = json.loads(answer.read())["error"]["code"]
    connection.close()
    return answer.status, code


def _a_second_server_is_refused(local: ServeConfig, work: Path) -> None:
    with pytest.raises(InputError, match="another process listens there"):
        prepare(SHIPPED, str(work), None, local.port)
    with pytest.raises(InputError, match="Serve already runs in this cluster"):
        deploy(local)


def _loses_a_shard(client: Client, searcher: Searcher, work: Path, cache: Path) -> Path:
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
