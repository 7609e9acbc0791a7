"""What kill tests strike are workers of this session's clusters, whatever else runs on the machine."""

import subprocess
import sys

from ..conftest import ray_processes

LIKE_A_WORKER = {"args": ["ray::TrainWorker", "-c", "read line"], "executable": "/bin/sh"}
ORPHANED = f"import subprocess; print(subprocess.Popen(**{LIKE_A_WORKER}).pid)"


def test_a_process_of_this_session_is_told_from_that_of_another_with_the_same_title():
    """The other's parent ends, so that nothing leads from it to this process."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    orphaning = [sys.executable, "-c", ORPHANED]
    with subprocess.Popen(**LIKE_A_WORKER, **pipes) as own, subprocess.Popen(orphaning, **pipes) as parent:
        foreign = int(parent.stdout.readline())
        parent.wait()
        assert {own.pid, foreign} & {*ray_processes("TrainWorker")} == {own.pid}
