"""What the client sends, and what it makes of a refusal."""

import asyncio
import json
import math
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from rayhier.serve import client as module
from rayhier.serve.client import AsyncClient, Client
from rayhier.serve.errors import ApiError

VISITED = {"leaves": [], "documents": 0, "fraction": 0.0, "enough": False}
SEEN = {"model": "0123456789ab", "version": 1, "log": 0}
ANSWERED = {"results": [], "visited": VISITED, "partial": False, "lost": [], "calls": None, "explain": None}


@pytest.fixture
def server(monkeypatch):
    """A server that notes requests and answers with each of `first`, and then with `answer`."""
    server = SimpleNamespace(asked=[], first=[], answer=None)

    async def answered(_, request):
        body = json.loads(request.content) if request.content else None
        server.asked.append((str(request.url).removeprefix("http://here"), body))
        answer = server.first.pop(0) if server.first else server.answer
        if isinstance(answer, Exception):
            return answer
        status, headers, said = answer
        return module.httpx2.Response(status, headers=headers, content=said, request=request)

    for kind in (Client, AsyncClient):
        monkeypatch.setattr(kind, "_answer", answered)
    return server


@pytest.fixture
def client(server):
    return Client("http://here/", "sesame-1", retries=0)


@pytest.fixture
def pauses(monkeypatch):
    """Seconds that clients would have waited."""
    noted = []
    monkeypatch.setattr(module.time, "sleep", noted.append)
    return noted


@pytest.mark.parametrize(
    ("said", "code", "message"),
    [(b'{"error": {"code": "overloaded", "message": "full"}}', "overloaded", "full"), (b"[]", "http", r"\[\]")],
    ids=["its own", "another server's"],
)
def test_refusals(server, client, said, code, message):
    server.answer = (503, {"retry-after": "1"}, said)
    with pytest.raises(ApiError, match=message) as caught:
        client.search("oak")
    assert (caught.value.status, caught.value.code, caught.value.headers) == (503, code, {"Retry-After": "1"})


def test_a_token_and_a_url_that_are_none():
    for token in ("", "sésame", "sesame 1", "sesame\n", "\x00"):
        with pytest.raises(ValueError, match=r"^token: got what no server takes; allowed: ") as caught:
            Client("http://127.0.0.1", token)
        assert not token or token not in str(caught.value)
    with pytest.raises(ValueError, match="url: got 'file:///x'; allowed: http"):
        Client("file:///x")


FULL = {**ANSWERED, "mode": "dense", **SEEN, "ms": {}}
RESULT = {"id": "d1", "score": "high" * 1_000, "leaf": 3, "title": "", "text": "", "fields": {}, "estimated": False}
MISFITS = {
    "/v1/search: the answer is not JSON": b"<html>Sign in</html>",
    r"/v1/search: the answer: got \[\]": b"[]",
    "/v1/search: version: got None": json.dumps({**FULL, "version": None}).encode(),
    "/v1/search: results.0.score: got 'high": json.dumps({**FULL, "results": [RESULT]}).encode(),
}


def test_an_answer_of_other_types(server, client):
    for message, said in MISFITS.items():
        server.answer = (200, {}, said)
        with pytest.raises(ApiError, match=message) as caught:
            client.search("oak")
        assert (caught.value.status, caught.value.code) == (200, "misfit")
        assert len(str(caught.value)) < 400


def test_numbers_and_filters_of_other_types(server, client):
    server.answer = (200, {}, json.dumps(FULL).encode())
    price = {"in": np.array([0.5, 2], np.float32), "exists": np.array(True)}
    where = {"and": ({"year": np.int64(2021), "lang": np.str_("en")}, {"price": price}, {"not": {"year": np.int8(3)}})}
    client.search(np.array([1, 0.5], np.float32), k=np.int64(5), beam=np.int32(2), strict=np.bool_(True))
    client.search("oak", filter=MappingProxyType(where), rerank=np.bool_(False), include=("title",))
    server.answer = (200, {}, json.dumps({"answers": [ANSWERED], "mode": "dense", **SEEN, "ms": {}}).encode())
    client.search_batch(np.eye(2), np.int8(3))
    price = {"in": [0.5, 2.0], "exists": True}
    sent = {"and": [{"year": 2021, "lang": "en"}, {"price": price}, {"not": {"year": 3}}]}
    none = {"k": None, "beam": None, "strict": False}
    assert [body for _, body in server.asked] == [
        {"vector": [1.0, 0.5], "k": 5, "beam": 2, "strict": True},
        {**none, "query": "oak", "filter": sent, "rerank": False, "include": ["title"]},
        {**none, "vectors": [[1.0, 0.0], [0.0, 1.0]], "k": 3},
    ]


ENDLESS = {}
ENDLESS["not"] = ENDLESS


MISTAKES = [
    (lambda client: client.search("oak", filter={"price": {"lt": math.inf}}), "filter.price.lt"),
    (lambda client: client.search("oak", filter={"price": {"in": [0, np.nan]}}), r"filter.price.in\[1\]"),
    (lambda client: client.search("oak", filter={"price": 10**400}), "filter.price"),
    (lambda client: client.search("oak", filter={"not": {2021: True}}), "filter.not"),
    (lambda client: client.search("oak", filter=ENDLESS), r"filter(\.not)*.*"),
    (lambda client: client.search_batch("oak"), "questions"),
    (lambda client: client.search_batch(["oak", [1, 2]]), "questions"),
    (lambda client: client.search(["oak", "elm"]), "question"),
    (lambda client: client.search_batch([[0.5, np.nan]]), "question"),
    (lambda client: client.search("oak", k=True), "k"),
    (lambda client: client.search("oak", include="title"), "include"),
    (lambda client: client.document(".."), "id"),
    (lambda client: client.document("\ud800"), "id"),
    (lambda client: client.documents(5), "after"),
    (lambda client: client.documents(limit=1.5), "limit"),
]


def test_mistakes_are_said_before_anything_is_sent(server, client):
    for ask, named in MISTAKES:
        with pytest.raises(ValueError, match=rf"^{named}: got .*; allowed: ") as caught:
            ask(client)
        assert len(str(caught.value)) < 600
    assert server.asked == []


FULL_UP = (503, {"Retry-After": "1"}, b'{"error": {"code": "overloaded", "message": "full"}}')


def test_a_server_that_is_full_is_asked_again_after_pauses_that_double(server, pauses):
    server.first = [FULL_UP, (503, {"Retry-After": "3"}, b"Request dropped"), (503, {}, b"")]
    server.answer = (200, {}, json.dumps(FULL).encode())
    assert Client("http://here", retries=3).search("oak").version == 1
    server.answer = (503, {}, b"")
    with pytest.raises(ApiError):
        Client("http://here", retries=12).search("oak")
    least = [1.0, 3.0, 4 * module.PAUSE_SECONDS, *(min(4.0, 0.25 * 2**retry) for retry in range(12))]
    assert len(server.asked) == 4 + 13
    assert all(low <= pause <= 1.5 * low for low, pause in zip(least, pauses, strict=True))


IN_AN_HOUR, MISTAKE = (503, {"Retry-After": "3600"}, b""), (422, {"Retry-After": "1"}, b"")


@pytest.mark.parametrize("answer", [IN_AN_HOUR, MISTAKE, (504, {}, b""), (200, {}, b"[]")])
def test_what_does_not_pass_is_not_asked_again(server, pauses, answer):
    server.answer = answer
    with pytest.raises(ApiError) as caught:
        Client("http://here", retries=5).search("oak")
    assert (caught.value.status, pauses, len(server.asked)) == (answer[0], [], 1)


MOVED = b"HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [(b"", 0, "unreachable"), (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", 0, "unreachable"), (MOVED, 301, "redirect")],
    ids=["silent", "no HTTP", "elsewhere"],
)
def test_a_server_that_is_none_or_elsewhere(said, status, code):
    def answer():
        one, _ = listener.accept()
        one.sendall(said)
        return one

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        held = pool.submit(answer)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ApiError, match=f"^{url}/v1/search: ") as caught:
            Client(url, timeout=30 if said else 0.2, retries=0).search("oak")
        held.result().close()
    assert (caught.value.status, caught.value.code) == (status, code)


def test_a_connection_that_is_cut_is_made_again_and_one_that_is_late_is_not(server, pauses):
    server.first = [module.httpx2.ConnectError("refused"), module.httpx2.ReadError("cut")]
    server.answer = (200, {}, json.dumps(FULL).encode())
    client = Client("http://here", retries=2)
    assert client.search("oak").version == 1
    server.answer = module.httpx2.ReadTimeout("late")
    with pytest.raises(ApiError, match="late"):
        client.search("oak")
    assert len(pauses) == 2


async def test_from_a_coroutine(server):
    server.answer = (200, {}, json.dumps(FULL).encode())
    async with AsyncClient("http://here", "sesame-1", retries=0) as client:
        answers = await asyncio.gather(*(client.search("oak", k) for k in range(1, 5)))
        assert [answer.version for answer in answers] == [1] * 4
        server.answer = FULL_UP
        with pytest.raises(ApiError, match="full"):
            await client.route([1, 2], 3)


def test_clients_have_the_same_methods():
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert public | {"close"} == {name for name in vars(AsyncClient) if not name.startswith("_")}
    for name in public:
        assert vars(Client)[name].__annotations__ == vars(AsyncClient)[name].__annotations__


LIGHT = """
import sys
sys.modules.update(dict.fromkeys(("fastapi", "starlette", "torch", "ray", "numpy", "pyarrow", "faiss")))
import rayhier.serve.client
"""


def test_a_client_needs_no_server_installed():
    subprocess.run([sys.executable, "-c", LIGHT], check=True)


def test_documents(server, client):
    body = {"id": "a/b", "title": "", "text": "x", "passages": ["x"], "fields": {}, "first_leaves": [1]}
    server.answer = (200, {}, json.dumps({**body, **SEEN}).encode())
    assert (client.document("a/b?").passages, client.document("é").version) == (["x"], 1)
    server.answer = (200, {}, json.dumps({"documents": [body], "next": "a/b", **SEEN}).encode())
    assert (client.documents("a&b", 3).next, client.documents().documents[0].id) == ("a/b", "a/b")
    asked = ["/v1/documents/a%2Fb%3F", "/v1/documents/%C3%A9"]
    asked += ["/v1/documents?after=a%26b&limit=3", "/v1/documents?after=&limit=100"]
    assert [path for path, _ in server.asked] == asked


def test_a_write_and_a_search_name_the_model_of_their_vectors(server, client):
    """Only if they are told: an older server knows no such key."""
    server.answer = (200, {}, b"{}")
    for more in ({}, {"model": "m"}):
        for ask in (partial(client.put, [{"id": "a", "text": "x"}]), partial(client.search, [1.0])):
            with pytest.raises(ApiError):  # no whole answer
                ask(**more)
            assert ("model" in server.asked[-1][1]) == bool(more)
