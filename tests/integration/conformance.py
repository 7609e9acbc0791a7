"""What every server of an index does, embedded or on Ray Serve: one suite for both."""

import http.client
import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from rayhier.search.request.hits import Answer
from rayhier.search.snapshot import Snapshot
from rayhier.serve.client import Client
from rayhier.serve.errors import ApiError
from rayhier.serve.http.bodies import AnswerBody, SearchResponse

TOKEN, WRITE_TOKEN = "sesame-1", "poppy-1"
TRIES = 5
BY_TEXT = 1e-5
"""Largest difference of two scores of a text, served and offline."""
OPEN = "quagga zebra okapi"
"""Words that no document of the corpus has."""
FORMS = [
    form.format(path)
    for path in ("/v1/versions/rollback", "/v1/documents")
    for form in ("{}", "{}%0A", "{}%00", "/{}", "{}/", "http://h{}", "http://h{}%0A")
]
"""Paths to write, and what a router might take for them."""


def conforms(url: str, searcher: Snapshot, built: Path, groups: list[str]) -> None:
    """Hold a server at an address against offline search of the same index, and against what the API promises."""
    client = Client(url, TOKEN)
    _says_what_it_serves(client, searcher, groups)
    _answers_as_offline_search_does(client, searcher, _texts(built / "corpus"))
    _shows_documents(client, searcher, built / "corpus")
    _shows_nodes(url, searcher)
    _encodes_texts(url, client, searcher)
    _has_a_page(url)
    _refuses(url)
    _is_healthy(url)


def writes(url: str, searcher: Snapshot) -> None:
    """Hold a server that writes to its promises about changes and versions."""
    client = Client(url, WRITE_TOKEN, timeout=60.0)
    _a_change_is_seen_by_the_next_search(client, searcher)
    _what_is_refused_changes_nothing(url, client)
    _a_version_is_published_again(client, searcher)


def _a_change_is_seen_by_the_next_search(client: Client, searcher: Snapshot) -> None:
    size, names = searcher.manifest.documents, [f"new{number}" for number in range(20)]
    for number, name in enumerate(names, 1):
        told = client.put([{"id": name, "text": f"{OPEN} {name}"}])
        assert (told.documents, told.replaced, told.version, told.log) == (1, 0, 1, number)
        found = client.search(f"{OPEN} {name}", number)
        assert name in {result.id for result in found.results}
        assert found.log == number
    assert client.index().documents == size + 20
    keyed = client.put([{"id": "new0", "text": "okapi"}], key="k-1")
    assert client.put([{"id": "new0", "text": "okapi"}], key="k-1") == keyed
    assert (keyed.replaced, keyed.log, client.document("new0").text) == (1, 21, "okapi")
    gone = client.delete(["new1", "new2"])
    assert (gone.documents, client.index().documents) == (2, size + 18)
    left = {result.id for result in client.search(OPEN, 100, min_log=gone.log).results}
    assert left & set(names) == set(names) - {"new1", "new2"}


def _what_is_refused_changes_nothing(url: str, client: Client) -> None:
    before = client.index()
    for refused, status, code in (
        (lambda: client.put([{"id": "a", "text": "zebra"}], key="k-1"), 422, "key_reused"),
        (lambda: client.put([{"id": "a", "text": ""}]), 422, "invalid"),
        (lambda: client.delete(["d1", "nosuch"]), 404, "no_document"),
        (lambda: client.rollback(99), 404, "no_version"),
        (lambda: client.search("oak", min_log=before.log + 1), 504, "timeout"),
        (lambda: Client(url, TOKEN).put([{"id": "a", "text": "zebra"}]), 403, "forbidden"),
        (lambda: Client(url, TOKEN).rollback(1), 403, "forbidden"),
    ):
        with pytest.raises(ApiError) as caught:
            refused()
        assert (caught.value.status, caught.value.code) == (status, code)
    head = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    for path, method in itertools.product(FORMS, ("POST", "PUT", "DELETE")):
        assert _sent(url, method, path, head, b'{"version": 1, "ids": ["d1"]}')[0] in (400, 403, 404), (method, path)
    now = client.index()  # a fold or a query searched exactly may end meanwhile; neither is a change
    assert (now.log, now.documents) == (before.log, before.documents)
    assert "rollback" not in {version.change for version in client.versions().versions}


def _a_version_is_published_again(client: Client, searcher: Snapshot) -> None:
    """A rollback leaves the tail behind; what is written afterwards counts."""
    before = client.index()
    told = client.rollback(1, key="r-1")
    assert client.rollback(1, key="r-1") == told
    assert (told.version, told.log, told.documents) == (2, before.log, searcher.manifest.documents)
    found = client.search(OPEN, 100)
    assert (found.version, found.log) == (2, before.log)
    assert not {result.id for result in found.results if result.id.startswith("new")}
    with pytest.raises(ApiError) as caught:
        client.rollback(2, key="r-1")
    assert (caught.value.status, caught.value.code) == (422, "key_reused")
    listed = client.versions()
    told_of = [(one.version, one.parent, one.change, one.restored, one.served) for one in listed.versions]
    assert told_of == [(2, 1, "rollback", 1, True), (1, None, "build", None, False)]
    assert listed.next is None
    first = client.versions(limit=1)
    assert (first.versions, first.next) == (listed.versions[:1], 2)
    assert client.versions(first.next, 1).versions == listed.versions[1:]
    after = client.put([{"id": "new9", "text": OPEN}])
    assert (after.version, after.log, after.replaced) == (2, before.log + 1, 0)
    assert client.search(OPEN, 1).results[0].id == "new9"


def _texts(corpus: Path) -> list[str]:
    """Every query, and documents until there are 200."""
    files = [(corpus / f"{name}.jsonl").read_text() for name in ("queries", "corpus")]
    return [json.loads(line)["text"] for file in files for line in file.splitlines()][:200]


def _says_what_it_serves(client: Client, searcher: Snapshot, groups: list[str]) -> None:
    index = client.index()
    assert (index.name, index.version, index.leaves_per_document, index.shards) == ("tiny", 1, 2, 3)
    assert index.groups == groups
    assert index.documents == searcher.manifest.documents
    assert (index.leaves, index.dimension) == (searcher.model.router.n_leaves, searcher.model.text_encoder.dimension)
    assert (index.similarity, index.precision) == (searcher.model.spec.encoder.similarity, "float32")
    assert (index.k, index.beam) == (searcher.model.spec.search.k, searcher.model.spec.search.beam)


def _answers_as_offline_search_does(client: Client, searcher: Snapshot, texts: list[str]) -> None:
    offline = searcher.search(texts, 10, 3)
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda text: _whole(client, text), texts)
        for served, expected in zip(answers, offline, strict=True):
            _same(served, expected, BY_TEXT)
            assert set(served.ms) == {"queue", "encode", "route", "scan", "total"}
    vectors = searcher.model.text_encoder.encode(texts)
    offline = searcher.search(vectors, 10, 3)
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


def _shows_documents(client: Client, searcher: Snapshot, corpus: Path) -> None:
    """Every document, page by page in the order of ids, as the corpus has it."""
    listed, after = [], None
    while True:
        page = client.documents(after, 100)
        listed += page.documents
        if page.next is None:
            break
        after = page.next
    rows = [json.loads(line) for line in (corpus / "corpus.jsonl").read_text().splitlines()]
    shown = {document.id: (document.title, document.text) for document in listed}
    assert shown == {row["_id"]: (row["title"], row["text"]) for row in rows}
    assert [document.id for document in listed] == sorted(shown, key=str.encode)
    alone = client.document(listed[7].id)
    assert alone.model_dump(exclude={"model", "version", "log"}) == listed[7].model_dump()
    assert (alone.model, alone.version, alone.log) == (searcher.manifest.model, 1, 0)
    with pytest.raises(ApiError, match="id: got 'nosuch'; allowed: the id of a document in the index") as caught:
        client.document("nosuch")
    assert caught.value.status == 404


def _shows_nodes(url: str, searcher: Snapshot) -> None:
    """The leaves, with the sizes that the manifest says, by number and below the root of the tiny tree."""
    head, counts = {"Authorization": f"Bearer {TOKEN}"}, searcher.manifest.counts
    status, _, body = _sent(url, "GET", f"/v1/nodes?{'&'.join(f'leaf={leaf}' for leaf in range(len(counts)))}", head)
    nodes = json.loads(body)["nodes"]
    assert (status, [node["size"] for node in nodes]) == (200, counts)
    assert all(bool(node["keywords"]) == bool(node["size"]) for node in nodes)
    below = json.loads(_sent(url, "GET", "/v1/nodes?below=0:0", head)[2])["nodes"]
    assert [node["size"] for node in below] == sorted(filter(None, counts), reverse=True)


def _encodes_texts(url: str, client: Client, searcher: Snapshot) -> None:
    """Vectors are those by which searches are made, however many texts are sent at a time."""
    texts = ["leaf root branch", "stone " * 1_500, "wolf"]
    np.testing.assert_allclose(client.encode(texts), searcher.model.encode(texts).numpy, atol=1e-5)
    found, again = client.search(texts[0], 5, mode="dense"), client.search(client.encode(texts[0])[0], 5)
    assert [result.id for result in again.results] == [result.id for result in found.results]
    head = {"Content-Type": "application/json"}
    assert _raw(url, "POST", "/v1/embeddings", b'{"input": "oak"}', head) == (401, "unauthorized")
    with pytest.raises(ApiError) as caught:
        client.encode(["oak"] * 10_000)
    assert (caught.value.status, caught.value.message) == (422, "input: got 10000 texts; allowed: 64, limits.max_batch")
    with pytest.raises(ApiError) as caught:
        client.rerank("oak", texts)
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def _has_a_page(url: str) -> None:
    """The page needs no token, and is not sent to those who have it."""
    _, headers, _ = _sent(url, "GET", "/", {})
    assert _sent(url, "HEAD", "/page/main.js", {})[0::2] == (200, b"")
    assert _sent(url, "GET", "/", {"If-None-Match": headers["ETag"]})[0::2] == (304, b"")
    assert _raw(url, "POST", "/", b"", {}) == (405, "method_not_allowed")


def _whole(client: Client, text: str) -> SearchResponse:
    """Answer of all groups: where processors are few and busy, one may give no sign of life in time, and is named."""
    for _ in range(TRIES):
        if not (served := client.search(text, 10, 3)).partial:
            break
        time.sleep(1)
    return served


def _same(served: AnswerBody, expected: Answer, tolerance: float) -> None:
    """Ids in their order but for ties, scores, and what was visited."""
    assert (served.partial, served.lost) == (False, [])
    assert served.visited.leaves == expected.leaves
    # Each shard group compares its best documents by words, so that several groups compare more.
    by_words = served.visited.documents - expected.documents if tolerance >= BY_TEXT else 0
    assert served.visited.documents == expected.documents + max(0, by_words)
    scores = [hit.score for hit in expected.hits]
    assert [result.score for result in served.results] == pytest.approx(scores, abs=tolerance)
    for place, (result, hit) in enumerate(zip(served.results, expected.hits, strict=True)):
        near = [other for other in scores if abs(other - hit.score) <= 2 * tolerance]
        assert result.id == hit.id or len(near) > 1 or place == len(scores) - 1
        if result.id == hit.id:
            assert (result.title, result.text) == (hit.title, hit.text)
            # Of a document in two leaves that were visited, either may be shown.
            assert result.leaf == hit.leaf or result.leaf in expected.leaves


def _refuses(url: str) -> None:
    """What a proxy could spoil: headers, statuses and bodies of errors on their way through it."""
    for token in (None, "sesame-2"):
        with pytest.raises(ApiError) as caught:
            Client(url, token).search("oak")
        assert (caught.value.status, caught.value.code) == (401, "unauthorized")
    client = Client(url, TOKEN)
    with pytest.raises(ApiError, match="k: got 1001; allowed: 1 to 1000"):
        client.search("oak", 1_001)
    with pytest.raises(ApiError, match="queries: got 65; allowed: 1 to 64"):
        client.search_batch(["oak"] * 65)
    head = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    assert _raw(url, "POST", "/v1/search", b'{"query": "' + b"x" * 4_000_000 + b'"}', head) == (413, "too_large")
    assert _raw(url, "GET", "/v1/search", b"", head) == (405, "method_not_allowed")
    assert _raw(url, "GET", "/nowhere", b"", head) == (404, "not_found")
    assert _raw(url, "POST", "/v1/search", b'{"vector": [NaN]}', head) == (422, "invalid")


def _sent(
    url: str, method: str, path: str, headers: dict[str, str], body: bytes | None = None
) -> tuple[int, Message, bytes]:
    """Status, headers and body of the answer to a request."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    sent = answer.status, answer.headers, answer.read()
    connection.close()
    return sent


def _raw(url: str, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """Status and code of a refusal."""
    status, _, answer = _sent(url, method, path, headers, body)
    return status, json.loads(answer)["error"]["code"]


def _is_healthy(url: str) -> None:
    """Health needs no token, and answers HEAD too."""
    for path in ("/healthz", "/readyz"):
        for method in ("GET", "HEAD"):
            assert _sent(url, method, path, {})[0] == 200
