"""A batch search that is killed goes on with the chunks that are missing."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rayhier.search.__main__ import main
from rayhier.search.batch import query_files

from ..unit.serve.conftest import TEXTS, published

__all__ = ["published"]  # fixture
QUERIES, CHUNK = 48, 6
POLL_SECONDS, PATIENCE_SECONDS = 0.01, 200.0
DONE = 3
COMMAND = f"""
import sys
from rayhier.search.batch import query_files
from rayhier.search.__main__ import main
from rayhier.storage import parquet
from rayhier.storage import files
write, written = parquet.write, []
def writing(*given):
    if len(written) == {DONE}:
        sys.stdin.read()  # until it is killed
    written.append(write(*given))
parquet.write, query_files.CHUNK = writing, {CHUNK}
sys.exit(main(sys.argv[1:]))
"""
"""The command, which stops before its fourth part."""


def test_a_killed_command_goes_on_with_the_chunks_that_are_missing(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out, whole = tmp_path / "queries.jsonl", tmp_path / "out.parquet", tmp_path / "whole.parquet"
    file.write_text("".join(json.dumps({"_id": f"q{n}", "text": TEXTS[n]}) + "\n" for n in range(QUERIES)))
    options = [str(published), "--queries", str(file), "-k", "5", "--beam", "4", "--out"]
    command = [sys.executable, "-c", COMMAND, *options, str(out)]
    killed = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    pause = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / POLL_SECONDS)):
        parts = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out.parquet.parts/[0-9]*.parquet")}
        if len(parts) == DONE or killed.poll() is not None:
            break
        pause.wait(POLL_SECONDS)
    killed.kill()
    _, said = killed.communicate()
    assert killed.returncode == -signal.SIGKILL, said
    assert len(parts) == DONE
    monkeypatch.setattr(query_files, "CHUNK", CHUNK)
    assert main([*options, str(whole)]) == 0
    code = COMMAND.replace(f"len(written) == {DONE}", f"len(written) == {QUERIES // CHUNK - DONE}")
    subprocess.run([sys.executable, "-c", code, *options, str(out)], check=True, stdin=subprocess.DEVNULL, timeout=120)
    assert pq.read_table(out).equals(pq.read_table(whole))
