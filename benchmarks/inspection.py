"""Inspection of very many documents: time and peak memory of describing every node, and of a page and a path.

    python -m benchmarks.inspection --documents 1_000_000

Documents are synthetic, and say so: 60 words each, half of them by Zipf's law over 200,000 words, half of them of
one of 5,000 subjects; vectors of 32 dimensions lie around their subject, leaves are those subjects' nearest cells. The
leaf map is written first, in a process of its own; what is measured runs in fresh processes.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import leaf_maps, tables
from benchmarks.collection import ROOT, RUNS
from benchmarks.machine import THREADS, set_threads, timed
from rayhier.arrays import Floats
from rayhier.index.describe import describe
from rayhier.index.shown import ShownTree
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import load_router, save_router
from rayhier.spec import load
from rayhier.spec.router.learned_ivf import LEAVES_A_ROOT
from rayhier.storage import files, schemas
from rayhier.storage.leaf_map import LEAVES, LeafMap

WORDS, VOCABULARY, SUBJECTS, OWN = 60, 200_000, 5_000, 40
"""Words of a document, words in all, subjects, and words of a subject."""
DIMENSION, SPREAD, SHARDS = 32, 0.6, 8


def texts(subject_N: np.ndarray, rng: np.random.Generator) -> list[str]:
    """Texts of documents by their subjects."""
    words = np.array([f"w{number}" for number in range(VOCABULARY)], dtype=object)
    common_NW = np.minimum(rng.zipf(1.1, (len(subject_N), WORDS // 2)), VOCABULARY) - 1
    own_NW = (subject_N[:, None] * OWN + rng.integers(0, OWN, (len(subject_N), WORDS // 2))) % VOCABULARY
    return [" ".join(row) for row in words[np.concatenate([common_NW, own_NW], axis=1)]]


def unit(x_NM: Floats) -> Floats:
    """Scale vectors [n, m] to unit length."""
    return np.asarray(x_NM / np.linalg.norm(x_NM, axis=1, keepdims=True), dtype=np.float32)


def prepare(root: Path, documents: int) -> None:
    """Write the leaf map of synthetic documents, and its router."""
    rng = np.random.default_rng(0)
    centre_CM = unit(rng.standard_normal((SUBJECTS, DIMENSION), dtype=np.float32))
    subject_N = rng.integers(0, SUBJECTS, documents)
    noise = rng.standard_normal((documents, DIMENSION), dtype=np.float32) * np.float32(SPREAD / DIMENSION**0.5)
    vector_NM = unit(centre_CM[subject_N] + noise)
    leaves = round(min(documents / 4, LEAVES_A_ROOT * documents**0.5))
    router = LearnedIvfRouter(DIMENSION, leaves, 1, 0, 0)
    import torch

    router.begin(torch.from_numpy(vector_NM[rng.permutation(documents)[:leaves]]))
    save_router(router, root / "router")
    ids = [f"d{number}" for number in range(documents)]
    table = pa.table([ids, [""] * documents, texts(subject_N, rng)], schema=schemas.DOCUMENTS)
    spec = load(ROOT / "specs" / "scifact.yaml", ["index.leaves_per_document=1"])
    leaf_maps.write(root, router, spec, table, vector_NM, SHARDS)


def described(root: Path) -> dict[str, float]:
    """Describe every node of the tree, and write it."""
    there, found = LeafMap.open(root), []
    tree: list[ShownTree] = []
    grouped = timed(lambda: tree.append(ShownTree.of(load_router(root / "router"))))
    seconds = timed(lambda: found.append(describe(there, tree[0])))
    files.write_parquet(root, LEAVES, found, schemas.LEAVES)
    return {"grouping": grouped, "describing": seconds, "nodes": len(found[0]), "leaves": len(there.manifest.counts)}


STEPS: dict[str, Callable[[Path], dict[str, float]]] = {"described": described}


def main() -> int:
    """Write, then measure in a fresh process; prints a table."""
    parser = argparse.ArgumentParser(description="Inspection of very many documents.")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--workdir", type=Path, default=RUNS / "inspection")
    parser.add_argument("--step", choices=["prepare", *STEPS], help="for this file itself")
    given = parser.parse_args()
    set_threads(THREADS)
    root = given.workdir.absolute()
    if given.step == "prepare":
        prepare(root, given.documents)
        return 0
    if given.step is not None:
        found = STEPS[given.step](root)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({**found, "peak": peak}))
        return 0
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    again = [sys.executable, "-m", "benchmarks.inspection", "--documents", str(given.documents), "--workdir", str(root)]
    subprocess.run([*again, "--step", "prepare"], check=True, cwd=ROOT)
    said = subprocess.run([*again, "--step", "described"], check=True, cwd=ROOT, capture_output=True, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    head = ["documents", "leaves", "nodes", "groups of leaves, s", "keywords and documents, s", "peak memory, GB"]
    row = [f"{given.documents:,}", f"{found['leaves']:,}", f"{found['nodes']:,}", f"{found['grouping']:.0f}"]
    row += [f"{found['describing']:.0f}", f"{found['peak'] / 1e9:.2f}"]
    print("\n".join(tables.table(head, [row])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
