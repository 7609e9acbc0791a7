"""The served models by themselves: OpenAI's embeddings, Jina's and Cohere's rerank, over canned models."""

import base64

import numpy as np
import pytest

from .stand_ins import error


def test_models_are_listed_by_name_and_fingerprint(client):
    answer = client.get("/v1/models").json()
    assert [(model["id"], model["object"], model["owned_by"]) for model in answer["data"]] == [
        ("canned", "model", "rayhier"),
        ("0123456789ab", "model", "rayhier"),
    ]


@pytest.mark.parametrize("name", ["canned", "0123456789ab", None])
def test_embeddings_in_openais_form(client, engine, name):
    body = {"input": ["oak", "a leaf"]} | ({} if name is None else {"model": name})
    answer = client.post("/v1/embeddings", json=body)
    assert answer.json() == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [3.0, 0.5, -1.0]},
            {"object": "embedding", "index": 1, "embedding": [6.0, 0.5, -1.0]},
        ],
        "model": name or "canned",
        "usage": {"prompt_tokens": 14, "total_tokens": 14},
    }
    assert engine.asked == [["oak", "a leaf"]]


def test_one_text_and_base64(client):
    body = {"model": "canned", "input": "oak", "encoding_format": "base64", "dimensions": 3, "user": "u"}
    (only,) = client.post("/v1/embeddings", json=body).json()["data"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(only["embedding"]), "<f4"), [3, 0.5, -1])


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_rerank_in_jinas_and_coheres_form(client, engine, path):
    body = {"model": "canned", "query": "oak", "documents": ["a", {"text": "a tall tree"}, "a leaf"], "top_n": 2}
    answer = client.post(path, json=body).json()
    assert [(result["index"], "document" in result) for result in answer["results"]] == [(1, False), (2, False)]
    scores = [result["relevance_score"] for result in answer["results"]]
    np.testing.assert_allclose(scores, [1 / (1 + np.exp(-6)), 1 / (1 + np.exp(-1))])
    assert engine.asked == [("oak", ["a", "a tall tree", "a leaf"])]
    shown = client.post(path, json=body | {"return_documents": True}).json()["results"]
    assert [result["document"] for result in shown] == [{"text": "a tall tree"}, {"text": "a leaf"}]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "says"),
    [
        (
            "embeddings",
            {"input": "oak", "model": "other"},
            404,
            "model_not_found",
            "model: got 'other'; allowed: canned",
        ),
        ("embeddings", {"input": []}, 422, "invalid", "input: got an empty list"),
        ("embeddings", {"input": [1, 2]}, 422, "invalid", "input: got token ids; allowed: a text, or a list of texts"),
        ("embeddings", {"input": [[1], [2]]}, 422, "invalid", "input: got token ids"),
        ("embeddings", {"input": {"a": 1}}, 422, "invalid", "input: got no text"),
        ("embeddings", {"input": ["oak", " "]}, 422, "invalid", "input: got no words"),
        ("embeddings", {"input": ["oak"] * 4}, 422, "invalid", "input: got 4 texts; allowed: 3, limits.max_batch"),
        ("embeddings", {"input": "oak", "dimensions": 2}, 422, "invalid", "dimensions: got 2; allowed: 3"),
        ("embeddings", {"input": "oak", "encoding_format": "hex"}, 422, "invalid", "encoding_format: got 'hex'"),
        ("embeddings", {"input": "oak", "inputs": "x"}, 422, "invalid", "inputs"),
        ("rerank", {"query": "oak", "documents": []}, 422, "invalid", "documents"),
        ("rerank", {"query": " ", "documents": ["a"]}, 422, "invalid", "query: got no words"),
        (
            "rerank",
            {"query": "oak" * 40, "documents": ["a"]},
            422,
            "invalid",
            "query: got 120 characters; allowed: 100",
        ),
        ("rerank", {"query": "oak", "documents": ["a"], "model": "x"}, 404, "model_not_found", "model: got 'x'"),
        ("rerank", {"query": "oak", "documents": ["a"], "top_n": 0}, 422, "invalid", "top_n: got 0"),
    ],
)
def test_bad_input(client, engine, path, body, status, code, says):
    answer = client.post(f"/v1/{path}", json=body)
    assert error(answer)[:2] == (status, code)
    assert says in error(answer)[2]
    assert engine.asked == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("embeddings", {"input": "x" * 101}),
        ("embeddings", {"input": ["oak", "x" * 101]}),
        ("rerank", {"query": "x" * 101, "documents": ["oak"]}),
        ("rerank", {"query": "oak", "documents": ["oak", "x" * 101]}),
        ("rerank", {"query": "oak", "documents": [{"text": "x" * 101}]}),
    ],
)
def test_texts_are_as_long_as_those_of_searches(client, engine, path, body):
    status, code, message = error(client.post(f"/v1/{path}", json=body))
    assert (status, code) == (422, "invalid")
    assert "got 101 characters; allowed: 100, limits.max_query" in message
    assert engine.asked == []
