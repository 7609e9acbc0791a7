"""Without torch, Ray, transformers and faiss: an index is searched, evaluated, served and changed, and no more."""

import os
import signal
import subprocess
import sys
import time

import pytest

from rayhier import open as open_index
from rayhier.serve.client import Client
from rayhier.serve.errors import ApiError

from .conformance import TOKEN

BLOCKS = """
import importlib.machinery, sys

class Blocked(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, *given):
        gone = {"torch", "ray", "transformers", "faiss", "scipy", "matplotlib", "onnx", "rich", "bm25s"}
        return None if name.partition(".")[0] in gone else super().find_spec(name, *given)

sys.meta_path = [Blocked if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
"""


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCKS)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *sys.path])}


def ran(environment, *arguments, code=0):
    command = [sys.executable, "-m", "rayhier", *map(str, arguments)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == code, ended.stderr
    return ended.stdout if code == 0 else ended.stderr


def test_the_shell_searches_and_evaluates_as_with_all_packages(work, environment, tmp_path, capsys):
    with open_index(work) as index:
        best = index.search("leaf root branch", 3)
    (tmp_path / "queries.tsv").write_text("q\tleaf root branch\n")
    (tmp_path / "judged.tsv").write_text(f"query-id\tcorpus-id\tscore\nq\t{best[0].id}\t1\n")
    found = ran(environment, "search", work, "leaf root branch", "-k", "3")
    assert [line.split()[3] for line in found.splitlines() if line.split()[0] in "123"] == [hit.id for hit in best]
    files = ["--queries", tmp_path / "queries.tsv", "--judgements", tmp_path / "judged.tsv"]
    (searched,) = [line for line in ran(environment, "eval", work, *files).splitlines() if line.startswith("as search")]
    assert searched.split()[2] == "1.000"


def test_a_server_answers_and_writes(work, environment, tmp_path, port):
    (tmp_path / "token").write_text(TOKEN)
    command = [sys.executable, "-m", "rayhier", "serve", str(work), "--port", str(port)]
    command += ["--write-token-file", str(tmp_path / "token")]
    with subprocess.Popen(command, env=environment) as server:
        try:
            with Client(f"http://127.0.0.1:{port}", TOKEN) as client:
                for _ in range(300):
                    try:
                        client.index()
                        break
                    except ApiError:
                        time.sleep(0.1)
                client.put([{"id": "new", "title": "", "text": "a new leaf of a new branch"}])
                assert client.search("a new leaf of a new branch", k=1).results[0].id == "new"
        finally:
            server.send_signal(signal.SIGINT)


@pytest.mark.parametrize("serves", [False, True])
def test_runs_and_ray_say_what_to_install(serves, built, work, environment):
    from .conftest import SHIPPED

    given = ["serve", SHIPPED, "--workdir", work] if serves else ["run", built / "spec.yaml"]
    assert "pip install 'rayhier[train,cpu]'" in ran(environment, *given, code=2)
