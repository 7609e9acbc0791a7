"""A batch search by workers on Ray answers as one process does, also where its driver or a worker is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from rayhier.search.batch import query_files
from rayhier.search.batch.job import Job, in_this_process
from rayhier.search.batch.query_files import IndexDocuments, QueryFile
from rayhier.search.batch.ray import WorkerPool
from rayhier.search.request.request import rules_of
from rayhier.search.snapshot import Snapshot
from rayhier.spec import InputError
from rayhier.storage import current

from ..conftest import leaf_map_of, ray_processes
from ..unit.serve.conftest import TEXTS, published

__all__ = ["published"]  # fixture
QUERIES, CHUNK = 48, 6
POLL_SECONDS, PATIENCE_SECONDS = 0.01, 200.0
ASKED = {"k": 5, "beam": 4, "mode": None, "budget": None, "filter": None}
DONE = 3
COMMAND = f"""
import sys
from rayhier.search.batch import query_files
from rayhier.search.__main__ import main
from rayhier.storage import files
write, written = files.write_parquet, []
def writing(*given):
    if len(written) == {DONE}:
        sys.stdin.read()  # until it is killed
    written.append(write(*given))
files.write_parquet, query_files.CHUNK = writing, {CHUNK}
sys.exit(main(sys.argv[1:]))
"""
"""The command, which stops before its fourth part."""

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_files, "CHUNK", CHUNK)


@pytest.fixture(scope="module")
def workers(cluster: None, published: Path) -> Iterator[WorkerPool]:
    """Two, for all tests here."""
    with WorkerPool(str(published), current.read(published), leaf_map_of(published).manifest, 2, None) as pool:
        yield pool


@pytest.fixture(scope="module")
def searcher(published: Path) -> Snapshot:
    return Snapshot.open(published)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queries.jsonl"
    rows = [{"_id": f"q{n}", "text": TEXTS[n]} for n in range(QUERIES)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def job(work: Path, file: Path | None, out: Path, **asked: Any) -> Job:
    """A job over the queries of a file, or the documents of the index."""
    leaf_map, now = leaf_map_of(work), current.read(work)
    rules = rules_of(now.spec, leaf_map.manifest)
    queries = IndexDocuments(leaf_map) if file is None else QueryFile(file, rules)
    return Job(queries, leaf_map.manifest, rules, out, ASKED | asked)


def alone(searcher: Snapshot, job: Job) -> list[dict[str, Any]]:
    """What one process answers, without a file."""
    chunks = enumerate(job.queries.chunks(query_files.Refused()))
    tables = [table for _, table in in_this_process(searcher, job.arguments)(chunks)]
    rows = pa.concat_tables(tables).to_pylist()
    # A process compares a list with all queries at once where it has many of both, which rounds in another way.
    return [{**row, "scores": pytest.approx(row["scores"], abs=1e-6)} for row in rows]


@pytest.mark.parametrize("filtered", [None, {"year": {"gte": 1990}}], ids=["all", "filtered"])
@pytest.mark.parametrize("documents", [False, True], ids=["queries", "documents"])
def test_two_workers_answer_as_one_process_does(
    published: Path, workers: WorkerPool, searcher: Snapshot, file: Path, tmp_path: Path, documents: bool, filtered: Any
) -> None:
    work = job(published, None if documents else file, tmp_path / "out.parquet", filter=filtered)
    answered, refused = work.run(workers.answers(work.arguments))
    assert (answered, refused.total) == (len(TEXTS) if documents else QUERIES, 0)
    rows = pq.read_table(work.out).to_pylist()
    assert rows == alone(searcher, work)
    assert len({row["query_id"] for row in rows}) == answered
    assert any(row["ids"] for row in rows)


def test_a_killed_driver_goes_on_with_the_chunks_that_are_missing(
    published: Path,
    workers: WorkerPool,
    searcher: Snapshot,
    file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command with two workers of its own is killed at its third part; the next one answers what is missing."""
    out = tmp_path / "out.parquet"
    options = [str(published), "--queries", str(file), "--out", str(out), "-k", "5", "--beam", "4"]
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", COMMAND, *options, "--workers", "2", "--address", address]
    driver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    work, pause, asked = job(published, file, out), threading.Event(), []
    for _ in range(int(PATIENCE_SECONDS / POLL_SECONDS)):
        if len(work.done()) == DONE or driver.poll() is not None:
            break
        pause.wait(POLL_SECONDS)
    driver.kill()
    _, said = driver.communicate()
    assert driver.returncode == -signal.SIGKILL, said
    assert len(work.done()) == DONE

    def counted(chunks: Any) -> Iterator[tuple[int, pa.Table]]:
        yield from workers.answers(work.arguments)(asked.append(number) or (number, chunk) for number, chunk in chunks)

    answered, _ = work.run(counted)
    assert (answered, len(asked)) == (QUERIES, QUERIES // CHUNK - DONE)
    assert pq.read_table(out).to_pylist() == alone(searcher, work)


def test_a_killed_worker_starts_again_and_its_chunks_are_searched_again(
    published: Path, workers: WorkerPool, searcher: Snapshot, file: Path, tmp_path: Path
) -> None:
    work, killed = job(published, file, tmp_path / "out.parquet"), []

    def killing(chunks: Any) -> Iterator[tuple[int, pa.Table]]:
        for number, table in workers.answers(work.arguments)(chunks):
            if not killed:
                killed.append(next(ray_processes("Worker")))
                os.kill(killed[0], signal.SIGKILL)
            yield number, table

    assert work.run(killing)[0] == QUERIES
    assert pq.read_table(work.out).to_pylist() == alone(searcher, work)
    assert killed[0] not in ray_processes("Worker")
    assert len(list(ray_processes("Worker"))) == 2


def test_what_the_cluster_or_the_index_does_not_allow(published: Path, file: Path, tmp_path: Path) -> None:
    manifest, now = leaf_map_of(published).manifest, current.read(published)
    with pytest.raises(InputError, match="--workers: got 10; allowed: 1 to 9, the index's leaves"):
        WorkerPool(str(published), now, manifest, 10, None)
    with pytest.raises(InputError, match=r"--workers: got 9 workers x 1 CPUs = 9; allowed: at most the cluster's 8"):
        WorkerPool(str(published), now, manifest, 9, None)


def test_a_worker_that_dies_too_often_ends_the_job_and_what_is_done_stays(
    published: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayhier.search.batch.ray.RESTARTS", 0)
    work, others = job(published, file, tmp_path / "out.parquet"), set(ray_processes("Worker"))
    with WorkerPool(str(published), current.read(published), work.manifest, 1, None) as pool:

        def killing(chunks: Any) -> Iterator[tuple[int, pa.Table]]:
            for number, table in pool.answers(work.arguments)(chunks):
                for pid in set(ray_processes("Worker")) - others:
                    os.kill(pid, signal.SIGKILL)
                yield number, table

        with pytest.raises(InputError, match=r"a worker died 1 times .*what is done is kept: run the same command"):
            work.run(killing)
    assert work.done()
    assert not work.out.exists()


def test_a_damaged_file_is_named(published: Path, file: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(published, tmp_path / "work")
    work = job(damaged, file, tmp_path / "out.parquet")
    router = next((damaged / "model").glob("*/attempt-*/router/*.safetensors"))
    router.write_bytes(router.read_bytes()[:-4] + b"else")
    pool = WorkerPool(str(damaged), current.read(damaged), work.manifest, 1, None)
    with pool, pytest.raises(InputError, match=r"router\.safetensors"):
        work.run(pool.answers(work.arguments))
