"""The served models by themselves: OpenAI's embeddings, Jina's and Cohere's rerank, over canned models."""

import base64

import numpy as np
import pytest

from .stand_ins import error, refuses


def test_models_are_listed_by_name_and_fingerprint(client):
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["canned", "0123456789ab"]


@pytest.mark.parametrize("name", ["canned", "0123456789ab", None])
def test_embeddings_in_openais_form(client, engine, name):
    body = {"input": ["oak", "a leaf"]} | ({} if name is None else {"model": name})
    one, other = (
        {"object": "embedding", "index": n, "embedding": [size, 0.5, -1.0]} for n, size in ((0, 3.0), (1, 6.0))
    )
    usage = {"prompt_tokens": 14, "total_tokens": 14}
    answer = {"object": "list", "data": [one, other], "model": name or "canned", "usage": usage}
    assert client.post("/v1/embeddings", json=body).json() == answer
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


REFUSED = [
    ("embeddings", {"input": []}, "input"),
    ("embeddings", {"input": [1, 2]}, "input"),
    ("embeddings", {"input": ["oak"] * 4}, "input"),
    ("embeddings", {"input": ["oak", "x" * 101]}, "input"),
    ("embeddings", {"input": "oak", "dimensions": 2}, "dimensions"),
    ("embeddings", {"input": "oak", "encoding_format": "hex"}, "encoding_format"),
    ("rerank", {"query": "oak", "documents": []}, "documents"),
    ("rerank", {"query": "x" * 101, "documents": ["a"]}, "query"),
    ("rerank", {"query": "oak", "documents": ["oak", {"text": "x" * 101}]}, "documents"),
    ("rerank", {"query": "oak", "documents": ["a"], "top_n": 0}, "top_n"),
]


def test_bad_input_is_refused_and_another_model_is_not_found(client, engine):
    for path, body, named in REFUSED:
        assert refuses(client.post(f"/v1/{path}", json=body), "; allowed: ").startswith(f"{named}: got ")
    for path, body in {"embeddings": {"input": "oak"}, "rerank": {"query": "oak", "documents": ["a"]}}.items():
        assert error(client.post(f"/v1/{path}", json=body | {"model": "other"}))[:2] == (404, "model_not_found")
    assert engine.asked == []
