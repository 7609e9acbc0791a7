"""What the client sends and returns is what the server's OpenAPI document says, path by path."""

import json
from typing import get_type_hints

import jsonschema
import pytest
from fastapi.testclient import TestClient

from rayhier.serve.client import Client

from .stand_ins import Canned, CannedWriter, app_of

DOCUMENT = "/v1/documents/{document_id}"
WHOLE = {"id": "a", "title": "b", "fields": {"year": 1}, "vector": (1, 0.5, 2)}
CALLS = {
    ("post", "/v1/search"): (Client.search, [("oak", 5, 2), ((1, 0.5, -2),), ([0.1, 0.2, 0.3], 3)]),
    ("post", "/v1/search:batch"): (Client.search_batch, [(["oak", "elm"],), ([(1, 0, 0), (0, 1, 0)], 5, 2)]),
    ("post", "/v1/route"): (Client.route, [("oak",), ("oak", 2), ((1, 0, 0),)]),
    ("post", "/v1/embeddings"): (Client.encode, [("oak",), (["oak", "elm"],)]),
    ("post", "/v1/rerank"): (Client.rerank, [("oak", ["elm", "ash"])]),
    ("get", "/v1/index"): (Client.index, [()]),
    ("get", "/v1/documents"): (Client.documents, [(), ("d0", 5)]),
    ("get", DOCUMENT): (Client.document, [("d1",)]),
    ("put", "/v1/documents"): (Client.put, [([{"id": "a", "text": "b"}],), ([WHOLE], "k")]),
    ("delete", "/v1/documents"): (Client.delete, [(["a", "b"],), (("a",), "key")]),
    ("get", "/v1/versions"): (Client.versions, [(), (4, 5)]),
    ("post", "/v1/versions/rollback"): (Client.rollback, [(3,), (3, "key")]),
    ("get", "/v1/nodes"): (Client.nodes, [(), ([5, 0],), (None, "1:1", 3)]),
}
"""Every path of the server that a client asks, and calls of each kind."""


@pytest.fixture(scope="module")
def app():
    return app_of(Canned(), writer=CannedWriter())


@pytest.fixture(scope="module")
def schema(app):
    return app.openapi()


@pytest.fixture
def sent(app, monkeypatch):
    """Requests that clients sent to a server in this process: method, path and body."""
    noted, server = [], TestClient(app)

    async def answered(_, request):
        method, path = request.method, str(request.url).removeprefix("http://here")
        answer = server.request(method, path, content=request.content, headers=dict(request.headers))
        assert answer.status_code == 200, answer.text
        asked = DOCUMENT if path.startswith("/v1/documents/") else path.partition("?")[0]
        noted.append((method.lower(), asked, json.loads(request.content) if request.content else None))
        return answer

    monkeypatch.setattr(Client, "_answer", answered)
    return noted


def test_every_path_is_asked_by_a_method(schema):
    listed = {(method, path) for path, own in schema["paths"].items() for method in own if path.startswith("/v1/")}
    assert listed - {("get", "/v1/models")} == set(CALLS), "that one is for other software"
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert {function.__name__ for function, _ in CALLS.values()} == public


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_requests_are_valid(schema, sent, call):
    method, path = call
    function, calls = CALLS[call]
    for arguments in calls:
        function(Client("http://here"), *arguments)
    assert [(one, other) for one, other, _ in sent] == [call] * len(calls)
    operation = schema["paths"][path][method]
    if "requestBody" not in operation:
        assert {body for *_, body in sent} == {None}
        return
    said = operation["requestBody"]["content"]["application/json"]["schema"]
    accepted = {**said, "components": schema["components"]}  # as a JSON Schema, with what its references name
    for *_, body in sent:
        jsonschema.validate(body, accepted)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**body, "limit": 3}, accepted)


PLAIN = {("post", "/v1/embeddings"), ("post", "/v1/rerank")}
"""Paths in the forms of other services, whose answers methods return as lists."""


@pytest.mark.parametrize("call", [call for call in CALLS if call not in PLAIN], ids=" ".join)
def test_responses_are_the_models_that_methods_return(schema, sent, call):
    method, path = call
    function, calls = CALLS[call]
    returned = get_type_hints(function)["return"]
    assert type(function(Client("http://here"), *calls[0])) is returned
    response = schema["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
    assert response == {"$ref": f"#/components/schemas/{returned.__name__}"}
    own = returned.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
    for name, model in {returned.__name__: own, **own.pop("$defs", {})}.items():
        said = schema["components"]["schemas"][name]
        assert said["properties"] == model["properties"], name
        assert set(said["required"]) == set(model["required"]) == set(model["properties"])
        assert said["additionalProperties"] is model["additionalProperties"] is False


def test_a_refusal_is_the_model_that_errors_are_read_as(schema):
    for path, own in schema["paths"].items():
        for operation in own.values() if path.startswith("/v1/") else ():
            assert {"401", "422", "500", "503"} <= set(operation["responses"])
            for status, one in operation["responses"].items():
                said = one["content"]["application/json"]["schema"]
                assert (said == {"$ref": "#/components/schemas/ErrorBody"}) == (status != "200")
