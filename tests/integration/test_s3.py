"""A bucket as the workdir: planned without a cluster, refused at once where it cannot be used, written by Ray."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rayhier import run
from rayhier.storage import files
from rayhier.storage.paths import locate
from rayhier.train.stage import arrow_filesystem

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


def train_worker(config: dict[str, str]) -> None:
    """Resume where there is a checkpoint, write one, and leave a file beside: what the train stage does."""
    import ray.train
    from ray.train import Checkpoint

    checkpoint = ray.train.get_checkpoint()
    done = int((Path(checkpoint.to_directory()) / "step").read_text()) if checkpoint else 0
    root = locate(config["root"])
    for step in range(done + 1, 4):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step").write_text(str(step))
            ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))
        files.create(root / f"step-{step}", str(done).encode())
        if step == 2 and files.create(root / "failed", b""):
            raise RuntimeError("lost")


@pytest.mark.usefixtures("cluster")
def test_ray_train_keeps_checkpoints_in_a_bucket(s3: str) -> None:
    """Ray's processes find the bucket, a failed worker goes on from its checkpoint, and everything can be removed."""
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    root = locate(s3)
    fs, path = arrow_filesystem(root / "scratch" / "ray")
    DataParallelTrainer(
        train_worker,
        train_loop_config={"root": s3},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(
            name="run",
            storage_path=path,
            storage_filesystem=fs,
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    ).fit()
    assert [(root / f"step-{step}").read_text() for step in (1, 2, 3)] == ["0", "0", "2"]
    assert any(name.endswith("/step") for name in files.below(root / "scratch"))
    files.remove(root)
    assert not root.exists()
