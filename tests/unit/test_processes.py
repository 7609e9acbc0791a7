"""What kill tests strike are workers of this session's clusters, whatever else runs on the machine."""

import subprocess
import sys
from pathlib import Path

from ..conftest import ray_processes

LIKE_A_WORKER = {"args": ["ray::TrainWorker", "-c", "read line"], "executable": "/bin/sh"}
ORPHANED = f"import subprocess; print(subprocess.Popen(**{LIKE_A_WORKER}).pid)"


def test_a_process_of_this_session_is_told_by_its_title():
    with subprocess.Popen(**LIKE_A_WORKER, stdin=subprocess.PIPE) as own:
        assert own.pid in ray_processes("TrainWorker")
        assert own.pid not in ray_processes("RoutePart")


def test_a_process_of_another_session_with_the_same_title_is_left_alone():
    """Its parent ends, so that nothing leads from it to this process."""
    with subprocess.Popen([sys.executable, "-c", ORPHANED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        foreign = int(parent.stdout.readline())
        parent.wait()
        assert Path(f"/proc/{foreign}/cmdline").read_bytes().startswith(b"ray::TrainWorker")
        assert foreign not in ray_processes("TrainWorker")
