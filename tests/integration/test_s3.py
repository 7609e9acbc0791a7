"""A bucket as the workdir: planned without a cluster, refused at once where it cannot be used."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rayhier import run
from rayhier.storage import files
from rayhier.storage.paths import locate

ONE_SCREEN = 24
EMPTY = '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>'
DENIED = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


def test_a_plan_leaves_the_bucket_as_it_is(
    tiny_spec: Callable[..., Path], s3: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main([str(tiny_spec(workdir=f"{s3}/runs/")), "--plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(f"workdir {s3}/runs")
    assert sum("  to do  " in line for line in lines) == 7
    assert files.below(locate(s3)) == []


def refused(spec: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a run that may not begin."""
    assert run.main([str(spec)]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert len(error.splitlines()) <= ONE_SCREEN
    return error


def test_a_missing_bucket(tiny_spec: Callable[..., Path], s3: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(tiny_spec(workdir="s3://no-such-bucket/a"), capsys)
    assert error.startswith("error: workdir: s3://no-such-bucket/a cannot be opened: NoSuchBucket: ")
    assert "allowed: a bucket that exists" in error


def test_nobody_answers(
    tiny_spec: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, s3: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    error = refused(tiny_spec(workdir=s3), capsys)
    assert error.startswith(f"error: workdir: {s3} cannot be opened: ")
    assert "http://127.0.0.1:1/" in error
    assert "AWS_" in error


def test_a_closed_bucket(
    tiny_spec: Callable[..., Path], answering: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    answering(GET=(403, DENIED))
    error = refused(tiny_spec(workdir="s3://closed/a"), capsys)
    assert "workdir: s3://closed/a cannot be opened: AccessDenied: Access Denied; allowed: " in error


def test_a_bucket_open_for_reading_alone(
    tiny_spec: Callable[..., Path], answering: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    answering(GET=(200, EMPTY), PUT=(403, DENIED))
    error = refused(tiny_spec(workdir="s3://read-only/a"), capsys)
    assert "workdir: s3://read-only/a cannot be written: AccessDenied: Access Denied" in error
