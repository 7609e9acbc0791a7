"""A message about a version that cannot be restored names no folder of the server."""

import re

import pytest

from rayhier.serve.errors import ApiError
from rayhier.serve.http.error_handlers import respond


@pytest.mark.parametrize("folder", ["/srv/runs/", "s3://bucket/runs/", "/srv/runs/index/ba98/"])
def test_what_cannot_be_restored_is_said_without_folders(folder):
    said = f"{folder}data/0.parquet: SHA-256 differs; allowed: a version that GET /v1/versions lists"
    shown = respond(ApiError(409, "not_restored", said)).body.decode()
    assert "data/0.parquet: SHA-256 differs; allowed: a version that GET /v1/versions lists" in shown
    assert not {"srv", "bucket", "runs", "index", "ba98"} & set(re.split(r"\W", shown))
