"""Driver, actor or node killed while an index is built, at seeded points: nothing is lost, doubled or done twice.

`make test` takes three points, `make chaos` fifty (RAYHIER_CHAOS=50).
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import ray

from rayhier import run
from rayhier.index.verify import verify
from rayhier.storage import current
from rayhier.storage.leaf_map import LeafMap, Manifest

from ..conftest import WORDS, ray_processes, write_spec
from .in_process import make

POINTS = int(os.environ.get("RAYHIER_CHAOS", "3"))
KINDS = ("driver", "actor", "node")
FILES, DOCUMENTS = 24, 100
WORKERS = 2
POLL_SECONDS = 0.005
PATIENCE_SECONDS = 240.0

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


@dataclass(frozen=True)
class Work:
    """A workdir up to its model, its spec, and the index an undisturbed run made of it."""

    folder: Path
    spec: Path
    reference: Manifest


@pytest.fixture(scope="module")
def work(cluster, tmp_path_factory, tiny_model):
    folder = tmp_path_factory.mktemp("chaos")
    (folder / "documents").mkdir()
    rng = np.random.default_rng(0)
    for number in range(FILES):
        texts = [" ".join(rng.choice(WORDS, 12)) for _ in range(DOCUMENTS)]
        rows = [{"id": f"d{number}-{row}", "text": text} for row, text in enumerate(texts)]
        (folder / "documents" / f"{number:02d}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = f"{{type: jsonl, documents: {folder / 'documents'}}}"
    index = "{shards: 12}"
    lines = {"corpus": corpus, "router": "{type: learned_ivf, branching: 60}", "index": index}
    spec = write_spec(folder, folder, tiny_model, **lines)
    make(spec, "corpus", "embed", "train", "index")
    reference = manifest(folder / "work")
    assert (reference.documents, len(reference.shards)) == (FILES * DOCUMENTS, 12)
    return Work(folder / "work", spec, reference)


def manifest(folder: Path) -> Manifest:
    return LeafMap.open(current.artifact(folder, current.read(folder), "index").root).manifest


class Ledger(threading.Thread):
    """Watches what is noted as done, and how often; calls `strike` once `count` entries are there."""

    def __init__(self, folder: Path, count: int, strike: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.folder, self.count, self.strike = folder, count, strike
        self.seen: defaultdict[str, set[int]] = defaultdict(set)
        self.struck, self.over = False, threading.Event()

    def run(self) -> None:
        while not self.over.wait(POLL_SECONDS):
            # Publishing removes the folder, now and then while it is looked through.
            with contextlib.suppress(FileNotFoundError):
                for path in self.folder.glob("index/*/*/scratch/ledger/*.json"):
                    self.seen[path.name].add(path.stat().st_mtime_ns)
            if not self.struck and len(self.seen) >= self.count:
                self.struck = True
                self.strike()

    def stop(self) -> int:
        """Ends; entries that were written more than once."""
        self.over.set()
        self.join()
        return sum(len(times) - 1 for times in self.seen.values())


def arguments(work: Work, folder: Path, workers: int = WORKERS) -> list[str]:
    """Of the run command: the index of the prepared work, by so many actors, in a folder."""
    sets = (f"workdir={folder}", f"cluster.index.workers={workers}")
    return [str(work.spec), "--stage", "index", *(part for one in sets for part in ("--set", one))]


def start(work: Work, folder: Path, workers: int, address: str | None = None) -> subprocess.Popen[bytes]:
    """A run in a process of its own, on the session's cluster where no other is named."""
    address = address or ray.get_runtime_context().gcs_address
    environment = {**os.environ, "RAY_ADDRESS": address, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rayhier.run", *arguments(work, folder, workers)]
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(command, env=environment, stdout=said, stderr=said)


def disturbed(point: int, count: int, work: Work, folder: Path) -> Ledger:
    """Build the index with one kill after `count` outputs; the run, or the next one, ends well.

    Who dies alternates. Every second driver has one worker, so that `make test` starts fewer.
    """
    kind = KINDS[point % len(KINDS)]
    if kind == "node":
        from ray.cluster_utils import Cluster

        size = {"num_cpus": 1, "object_store_memory": 10**8}
        # Without a port of its own: Ray leaves a socket open where another cluster's dashboard has the usual one.
        head = {**size, "include_dashboard": False, "dashboard_port": None}
        nodes = Cluster(initialize_head=True, head_node_args=head)
        first, _ = (nodes.add_node(**size) for _ in range(2))

        def strike() -> None:
            nodes.remove_node(first, allow_graceful=False)

        ledger = Ledger(folder, count, strike)
        ledger.start()
        try:
            ended = start(work, folder, WORKERS, nodes.address).wait(PATIENCE_SECONDS)
            assert ended == 0, (folder / "said").read_text()
        finally:
            nodes.shutdown()
        return ledger
    if kind == "driver":
        workers = 1 + point // len(KINDS) % WORKERS
        process = start(work, folder, workers)
        ledger = Ledger(folder, count, process.kill)
        ledger.start()
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        assert not list(folder.glob("index/*/record.json"))
        assert run.main(arguments(work, folder, workers)) == 0
        return ledger

    def strike() -> None:
        for pid in list(ray_processes("RoutePart", "DivideParts", "GatherShard"))[:1]:
            os.kill(pid, signal.SIGKILL)

    ledger = Ledger(folder, count, strike)
    ledger.start()
    assert run.main(arguments(work, folder)) == 0
    return ledger


@pytest.mark.parametrize("point", range(POINTS))
def test_killed_at_a_seeded_point(point, work, tmp_path):
    rng = np.random.default_rng(point)
    count = int(rng.integers(1, FILES + 13))
    folder = shutil.copytree(work.folder, tmp_path / "work", ignore=shutil.ignore_patterns("index", "current.json"))
    ledger = disturbed(point, count, work, folder)
    again = ledger.stop()
    assert ledger.struck
    assert again <= WORKERS, f"{KINDS[point % len(KINDS)]} killed after {count}: {again} outputs were made twice"
    made = manifest(folder)
    assert [shard.file for shard in made.shards] == [shard.file for shard in work.reference.shards]
    assert (made.documents, made.counts, made.moved) == (
        work.reference.documents,
        work.reference.counts,
        work.reference.moved,
    )
    assert len(list(folder.glob("index/*/*/manifests/*"))) == len(list(folder.glob("index/*/attempt-*"))) == 1
    verify(current.artifact(folder, current.read(folder), "index").root)


def test_two_racing_runs_publish_one_manifest(work, tmp_path):
    folder = shutil.copytree(work.folder, tmp_path / "work", ignore=shutil.ignore_patterns("index", "current.json"))
    both = [start(work, folder, workers=1) for _ in range(2)]
    assert [process.wait(PATIENCE_SECONDS) for process in both] == [0, 0], (folder / "said").read_text()
    made = manifest(folder)
    assert [shard.file for shard in made.shards] == [shard.file for shard in work.reference.shards]
    assert len(list(folder.glob("index/*/*/manifests/*"))) == 1
    verify(current.artifact(folder, current.read(folder), "index").root)
