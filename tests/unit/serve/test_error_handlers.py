"""Errors of the framework, which quote of a request no more than a little."""

import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from rayhier.serve.errors import ApiError
from rayhier.serve.http.error_handlers import install, respond
from rayhier.serve.http.models import NAME_SHOWN


@pytest.fixture
def client():
    app = FastAPI()
    app.get("/v1/{name}")(lambda name: name)
    install(app)
    return TestClient(app)


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/" + "x" * 5_000), ("P" * 5_000, "/v1/x")])
def test_a_wrong_method_is_quoted_in_short(client, method, path):
    answer = client.request(method, path)
    method, path = method[:NAME_SHOWN], path[:NAME_SHOWN]
    said = f"{method} {path}: got {method}; allowed: GET"
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    assert answer.json() == {"error": {"code": "method_not_allowed", "message": said}}


@pytest.mark.parametrize("folder", ["/srv/runs/", "s3://bucket/runs/", "/srv/runs/index/ba98/"])
def test_what_cannot_be_restored_is_said_without_folders(folder):
    said = f"{folder}data/0.parquet: SHA-256 differs; allowed: a version that GET /v1/versions lists"
    shown = respond(ApiError(409, "not_restored", said)).body.decode()
    assert "data/0.parquet: SHA-256 differs; allowed: a version that GET /v1/versions lists" in shown
    assert not {"srv", "bucket", "runs", "index", "ba98"} & set(re.split(r"\W", shown))
