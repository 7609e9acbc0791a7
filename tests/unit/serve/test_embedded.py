"""An embedded server: the whole application in one process, without Ray, as offline search answers."""

import subprocess
import sys

import pytest
from fastapi.testclient import TestClient

from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.shards import ShardGroup
from rayhier.serve.embedded import Embedded
from rayhier.serve.errors import LostError

from .conftest import TEXTS


@pytest.fixture
def embedded(published):
    opened = Embedded(ServeArgs(workdir=str(published)))
    yield opened
    opened.close()


def test_metrics_are_shown(embedded):
    client = TestClient(embedded.app())
    client.post("/v1/search:batch", json={"queries": TEXTS[:3]})
    lines = client.get("/metrics").text.splitlines()
    assert 'rayhier_request_seconds_count{path="/v1/search:batch",status="200"} 1.0' in lines
    assert "rayhier_visited_documents_count 3.0" in lines
    assert "rayhier_version 1.0" in lines


async def test_shards_that_fail_are_lost_until_they_answer(published, monkeypatch):
    async def fails(*_):
        raise OSError("gone")

    opened = Embedded(ServeArgs(workdir=str(published)))
    (shards,) = opened._shards
    with monkeypatch.context() as patch:
        patch.setattr(ShardGroup, "read", fails)
        patch.setattr(ShardGroup, "ping", fails)
        with pytest.raises(LostError, match="shards-0"):
            await shards.read(None, None)
        assert not await shards.answers()
    assert await shards.answers()
    opened.close()


def test_it_imports_no_ray():
    said = "import sys, rayhier.serve.embedded; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said], check=False).returncode == 0
