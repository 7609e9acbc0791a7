"""An embedded server: the whole application in one process, without Ray, and the metrics that it shows."""

import math
import subprocess
import sys
from unittest.mock import AsyncMock

import pytest
from fastapi.testclient import TestClient
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.shards import ShardGroup
from rayhier.serve.embedded import Embedded
from rayhier.serve.errors import LostError
from rayhier.serve.metrics import Metrics, Prometheus

from .conftest import TEXTS


async def test_shards_that_fail_are_lost_until_they_answer(published, monkeypatch):
    opened = Embedded(ServeArgs(workdir=str(published)))
    (shards,) = opened._shards
    with monkeypatch.context() as patch:
        for name in ("read", "ping"):
            patch.setattr(ShardGroup, name, AsyncMock(side_effect=OSError("gone")))
        with pytest.raises(LostError, match="shards-0"):
            await shards.read(None, None)
        assert not await shards.answers()
    assert await shards.answers()
    opened.close()


def test_it_imports_no_ray():
    said = "import sys, rayhier.serve.embedded; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", said], check=True)


def samples_of(text):
    """Every sample that Prometheus reads: name, tags -> value."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_what_was_noted():
    prometheus = Prometheus()
    metrics = Metrics(prometheus)
    assert math.isnan(samples_of(generate_latest(prometheus.registry).decode())["rayhier_recall",])  # not measured yet
    metrics.answered("/v1/search", 200, 0.25)
    metrics.searched({"encode": 5.0, "scan": 20.0}, [3, 40], [["shards-0"], ["shards-0", "reranker"]], 12)
    metrics.batched("encode", 8)
    metrics.audited(0.9, 0.8, 0.95)
    metrics.skipped()
    metrics.serves(4)
    search = ("path", "/v1/search"), ("status", "200")
    assert (
        samples_of(generate_latest(prometheus.registry).decode()).items()
        >= {
            ("rayhier_request_seconds_sum", *search): 0.25,
            ("rayhier_request_seconds_bucket", ("le", "0.2"), *search): 0,
            ("rayhier_request_seconds_bucket", ("le", "0.5"), *search): 1,
            ("rayhier_stage_seconds_sum", ("stage", "scan")): pytest.approx(0.02),
            ("rayhier_visited_documents_sum",): 43,
            ("rayhier_batch_size_count", ("stage", "encode")): 1,
            ("rayhier_calls_total",): 12,
            ("rayhier_partial_total", ("group", "shards-0")): 2,
            ("rayhier_partial_total", ("group", "reranker")): 1,
            ("rayhier_version",): 4,
            ("rayhier_recall_low",): 0.8,
            ("rayhier_audited_total",): 1,
            ("rayhier_audits_skipped_total",): 1,
        }.items()
    )


def test_an_embedded_server_shows_metrics(published):
    opened = Embedded(ServeArgs(workdir=str(published)))
    client = TestClient(opened.app())
    client.post("/v1/search:batch", json={"queries": TEXTS[:3]})
    samples = samples_of(client.get("/metrics").text)
    opened.close()
    assert samples["rayhier_request_seconds_count", ("path", "/v1/search:batch"), ("status", "200")] == 1
    assert (samples["rayhier_visited_documents_count",], samples["rayhier_version",]) == (3, 1)
