"""Errors of the framework, which quote of a request no more than a little."""

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from rayhier.serve.http.error_handlers import install
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


def test_a_wrong_path_is_quoted_in_short(client):
    said = f"/{'x' * (NAME_SHOWN - 1)}: no such path; /openapi.json lists all paths"
    answer = client.get("/" + "x" * 5_000)
    assert (answer.status_code, answer.json()) == (404, {"error": {"code": "not_found", "message": said}})
