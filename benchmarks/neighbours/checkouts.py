"""Other projects' checkouts: Python run in their folders."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.collection import ROOT

LOG = "rayhier.log"
"""File of a checkout with all that was printed there."""
RUNNER = """
import os, runpy, time

def begin():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    time.sleep(1)

os.register_at_fork(after_in_child=begin)
runpy.run_path("run.py", run_name="__main__")
"""
"""Runs a checkout's run.py, whose worker has one processor, as in its Docker images, and begins a second later: it ends
where it looks at its queue before this is filled."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run(checkout: Path, *arguments: str) -> None:
    """Run Python by one thread in a checkout's folder, with rayhier at hand; exits where it fails."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **dict.fromkeys(THREADS, "1"), "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": paths}
    with (checkout / LOG).open("ab") as log:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=checkout, env=environment, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{' '.join(arguments[:2])}: exit code {done.returncode}; see {checkout / LOG}")


def measure(checkout: Path, folder: Path, *arguments: str) -> None:
    """Have a checkout's run.py write results below a folder, which is emptied before; exits where there are none.

    Its errors are in the log alone.
    """
    shutil.rmtree(folder, ignore_errors=True)
    run(checkout, "-c", RUNNER, *arguments)
    if not any(folder.rglob("*.hdf5")):
        sys.exit(f"run.py wrote no results; see {checkout / LOG}")
