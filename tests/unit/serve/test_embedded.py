"""An embedded server: the whole application in one process, without Ray, as offline search answers."""

import asyncio
import subprocess
import sys

import numpy as np
import pytest
from fastapi.testclient import TestClient

from rayhier.search.snapshot import Snapshot
from rayhier.serve.args import ServeArgs
from rayhier.serve.embedded import Embedded
from rayhier.serve.errors import LostError
from rayhier.spec import InputError
from rayhier.storage import current, pins

from .conftest import TEXTS


@pytest.fixture
def embedded(published):
    opened = Embedded(ServeArgs(workdir=str(published)))
    yield opened
    opened.close()


def test_it_answers_as_offline_search_does(embedded, published):
    client, searcher = TestClient(embedded.app()), Snapshot.open(published)
    for text, expected in zip(TEXTS[::7], searcher.search(TEXTS[::7], 5, 3), strict=True):
        body = client.post("/v1/search", json={"query": text, "k": 5, "beam": 3}).json()
        assert [result["id"] for result in body["results"]] == [hit.id for hit in expected.hits]
        scores = [result["score"] for result in body["results"]]
        np.testing.assert_allclose(scores, [hit.score for hit in expected.hits], atol=1e-5)
        assert (body["visited"]["leaves"], body["partial"]) == (expected.leaves, False)


def test_one_group_unless_more_are_asked_for(published):
    for asked, names in ((None, ["shards-0"]), (3, ["shards-0", "shards-1", "shards-2"])):
        opened = Embedded(ServeArgs(workdir=str(published), shard_groups=asked))
        assert TestClient(opened.app()).get("/v1/index").json()["groups"] == names
        opened.close()


def test_metrics_are_shown(embedded):
    client = TestClient(embedded.app())
    client.post("/v1/search:batch", json={"queries": TEXTS[:3]})
    lines = client.get("/metrics").text.splitlines()
    assert 'rayhier_request_seconds_count{path="/v1/search:batch",status="200"} 1.0' in lines
    assert "rayhier_visited_documents_count 3.0" in lines
    assert "rayhier_version 1.0" in lines


def test_metrics_need_the_token(published, tmp_path):
    (tmp_path / "token").write_text("sesame")
    opened = Embedded(ServeArgs(workdir=str(published), token_file=str(tmp_path / "token")))
    client = TestClient(opened.app())
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer sesame"}).status_code == 200
    opened.close()


def test_it_keeps_its_version_until_it_is_closed(published):
    root = current.artifact(published, current.read(published), "index").root
    before = pins.held(root)
    opened = Embedded(ServeArgs(workdir=str(published)))
    assert pins.held(root) == {1}
    opened.close()
    del opened
    assert before <= {1}


def test_limits_below_the_specs_defaults_are_refused(published):
    with pytest.raises(InputError, match=r"limits.max_k: got 5; allowed: at least 7, the spec's search.k"):
        Embedded(ServeArgs(workdir=str(published), limits={"max_k": 5}))


def test_shards_that_fail_are_lost_until_they_answer(published):
    async def main():
        opened = Embedded(ServeArgs(workdir=str(published)))
        (shards,) = opened._shards
        group = shards._group

        async def fails(*_):
            raise OSError("gone")

        group.read, group.ping = fails, fails
        with pytest.raises(LostError, match="shards-0"):
            await shards.read(None)
        assert not await shards.answers()
        del group.read, group.ping
        assert await shards.answers()
        opened.close()

    asyncio.run(main())


def test_it_imports_no_ray():
    said = "import sys, rayhier.serve.embedded; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said], check=False).returncode == 0
