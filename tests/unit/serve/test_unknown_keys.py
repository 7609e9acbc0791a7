"""Messages about bodies: a body with keys that no body has is refused by one line, wherever the keys stand."""

import pytest
from fastapi.testclient import TestClient

from rayhier.serve.args import RequestLimits, WriteLimits
from rayhier.serve.http import error_handlers

from .stand_ins import Canned, CannedWriter, app_of, refuses

MANY = {f"k{number}": 0 for number in range(15_000)}
BODIES = [
    ("POST", "/v1/search", {"query": "oak", **MANY}),
    ("POST", "/v1/search:batch", {"queries": ["oak"], **MANY}),
    ("POST", "/v1/route", {"query": "oak", **MANY}),
    ("POST", "/v1/embeddings", {"input": "oak", **MANY}),
    ("POST", "/v1/rerank", {"query": "oak", "documents": ["elm"], **MANY}),
    ("POST", "/v2/rerank", {"query": "oak", "documents": [{"text": "elm", **MANY}]}),
    ("PUT", "/v1/documents", {"documents": [{"id": "a", "text": "oak"}], **MANY}),
    ("PUT", "/v1/documents", {"documents": [{"id": "a", "text": "oak", **MANY}]}),
    ("DELETE", "/v1/documents", {"ids": ["a"], **MANY}),
    ("POST", "/v1/versions/rollback", {"version": 1, **MANY}),
]


@pytest.mark.parametrize(("method", "path", "body"), BODIES, ids=[f"{method} {path}" for method, path, _ in BODIES])
def test_of_many_unknown_keys_one_is_an_error(monkeypatch, method, path, body):
    found, plain = [], error_handlers.RequestValidationError.errors
    monkeypatch.setattr(
        error_handlers.RequestValidationError, "errors", lambda self: found.extend(plain(self)) or plain(self)
    )
    client = TestClient(app_of(Canned(), RequestLimits(), writer=CannedWriter()))
    refuses(client.request(method, path, json=body), "got key 'k0'; allowed: ")
    assert len(found) <= 2


@pytest.mark.parametrize(
    ("method", "path", "writer", "status"),
    [
        ("POST", "/v1/search", CannedWriter(), 413),
        ("PUT", "/v1/documents", CannedWriter(), 422),
        ("PUT", "/v1/documents", None, 413),
    ],
)
def test_a_body_that_does_not_write_has_fewer_values(method, path, writer, status):
    client = TestClient(app_of(Canned(), RequestLimits(), writer=writer, writes=WriteLimits()))
    assert client.request(method, path, json={"query": "oak", "documents": [1] * 21_000}).status_code == status


@pytest.mark.parametrize("ids", [r'["\ud800"]', r'["a", "b\udfff"]'])
def test_an_id_to_delete_is_unicode(ids):
    writer = CannedWriter()
    client = TestClient(app_of(Canned(), RequestLimits(), writer=writer))
    answer = client.request(
        "DELETE", "/v1/documents", content=f'{{"ids": {ids}}}', headers={"Content-Type": "application/json"}
    )
    refuses(answer, "got an unpaired surrogate at character")
    assert writer.told == []
