"""What Prometheus reads of a server."""

import math

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rayhier.serve.metrics import Metrics, Prometheus


def shown(prometheus):
    """Every sample that Prometheus reads: name, tags -> value."""
    text = generate_latest(prometheus.registry).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_prometheus_reads_what_was_noted():
    prometheus = Prometheus()
    metrics = Metrics(prometheus)
    assert math.isnan(shown(prometheus)["rayhier_recall",])  # not measured yet
    metrics.answered("/v1/search", 200, 0.25)
    metrics.searched({"encode": 5.0, "scan": 20.0}, [3, 40], [[], []], 0)
    metrics.searched({}, [], [["shards-0"], ["shards-0", "reranker"]], 0)
    metrics.searched({}, [], [[]], 12)
    metrics.batched("encode", 8)
    metrics.audited(0.9, 0.8, 0.95)
    metrics.skipped()
    metrics.serves(4)
    samples = shown(prometheus)
    search = ("path", "/v1/search"), ("status", "200")
    assert samples["rayhier_request_seconds_count", *search] == 1
    assert samples["rayhier_request_seconds_sum", *search] == 0.25
    assert samples["rayhier_request_seconds_bucket", ("le", "0.2"), *search] == 0
    assert samples["rayhier_request_seconds_bucket", ("le", "0.5"), *search] == 1
    assert samples["rayhier_stage_seconds_sum", ("stage", "scan")] == pytest.approx(0.02)
    assert samples["rayhier_visited_documents_sum",] == 43
    assert samples["rayhier_batch_size_count", ("stage", "encode")] == 1
    assert samples["rayhier_calls_total",] == 12
    assert samples["rayhier_partial_total", ("group", "shards-0")] == 2
    assert samples["rayhier_partial_total", ("group", "reranker")] == 1
    assert samples["rayhier_version",] == 4
    assert samples["rayhier_recall_low",] == 0.8
    assert (samples["rayhier_audited_total",], samples["rayhier_audits_skipped_total",]) == (1, 1)
