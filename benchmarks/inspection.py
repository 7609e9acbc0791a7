"""Inspection of very many documents: time and peak memory of describing every node, and of a page and two paths."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from benchmarks import leaf_maps, tables
from benchmarks.collection import SPEC
from benchmarks.commands import Options, apart
from benchmarks.goals import Goal
from benchmarks.machine import THREADS, peak_memory, set_threads, timed
from benchmarks.synthetic import unit
from rayhier.arrays import Floats
from rayhier.index.describe import describe
from rayhier.index.display import DisplayTree
from rayhier.inspect.nodes import Inspection
from rayhier.inspect.page import MOST_NODES, write_page
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import load_router, save_router
from rayhier.search.index import reading_leaf_map
from rayhier.spec import load
from rayhier.spec.router.learned_ivf import LEAVES_A_ROOT
from rayhier.storage import columns, current, files, schemas
from rayhier.storage.artifact import Kind, Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import LEAVES

WORDS, VOCABULARY, SUBJECTS, OWN = 60, 200_000, 5_000, 40
"""Words of a document, words in all, subjects, and words of a subject."""
DIMENSION, SPREAD, SHARDS = 32, 0.6, 8
QUERIES = 1_000
MOST_MEMORY = 3.0
"""Gigabytes that no step may exceed."""
NAME = "none"
"""Fingerprint of every artifact; leaf maps of benchmarks say that a model of this name made them."""


def texts(subject_N: np.ndarray, rng: np.random.Generator) -> list[str]:
    """Texts of documents by their subjects."""
    words = np.array([f"w{number}" for number in range(VOCABULARY)], dtype=object)
    common_NW = np.minimum(rng.zipf(1.1, (len(subject_N), WORDS // 2)), VOCABULARY) - 1
    own_NW = (subject_N[:, None] * OWN + rng.integers(0, OWN, (len(subject_N), WORDS // 2))) % VOCABULARY
    return [" ".join(row) for row in words[np.concatenate([common_NW, own_NW], axis=1)]]


def prepare(root: Path, documents: int) -> None:
    """Publish the index of synthetic documents, and what inspection reads besides: router, queries, their vectors."""
    set_threads(THREADS)
    rng = np.random.default_rng(0)
    centre_CM = unit(rng.standard_normal((SUBJECTS, DIMENSION), dtype=np.float32))
    subject_N = rng.integers(0, SUBJECTS, documents)
    vector_NM = near(centre_CM[subject_N], rng)
    leaves = round(min(documents / 4, LEAVES_A_ROOT * documents**0.5))
    router = LearnedIvfRouter(DIMENSION, leaves, 1, 0, 0)
    router.begin(torch.from_numpy(vector_NM[rng.permutation(documents)[:leaves]]))
    table = leaf_maps.texts([f"d{number}" for number in range(documents)], texts(subject_N, rng))
    spec = load(SPEC, ["index.leaves_per_document=1", "name=synthetic", f"workdir={root}"])
    asked_Q, names = rng.integers(0, SUBJECTS, QUERIES), [f"q{number}" for number in range(QUERIES)]
    queries = pa.table([names, texts(asked_Q, rng)], schema=schemas.QUERIES)
    column = columns.vector_column(near(centre_CM[asked_Q], rng), pa.float32())
    vectors = pa.table([names, column], schema=schemas.vectors("query_id", DIMENSION))
    fills: dict[Kind, Callable[[Path], object]] = {
        "corpus": lambda folder: files.write_parquet(folder, "queries.parquet", [queries], queries.schema),
        "vectors": lambda folder: files.write_parquet(folder, "queries.parquet", [vectors], vectors.schema),
        "model": lambda folder: save_router(router, folder / "router"),
        "index": lambda folder: leaf_maps.write(folder, router, spec, table, vector_NM, SHARDS),
    }
    for kind, fill in fills.items():
        with Attempt.start(Place(root / kind / NAME)) as attempt:
            assert isinstance(attempt.root, Path)
            fill(attempt.root)
            attempt.publish(kind, {}, Output({}))
    current.write(root, Current(spec=spec, artifacts=dict.fromkeys(fills, NAME)))


def near(vector_NM: Floats, rng: np.random.Generator) -> Floats:
    """Unit vectors [n, m] around others."""
    noise = rng.standard_normal(vector_NM.shape, dtype=np.float32)
    return unit(vector_NM + noise * np.float32(SPREAD / DIMENSION**0.5))


def described(root: Path) -> dict[str, float]:
    """Describe every node of the tree, and write it."""
    now = current.read(root)
    tree = DisplayTree.of(load_router(current.artifact(root, now, "model").local("router")))
    with reading_leaf_map(root, now) as there:
        found = describe(there, tree)
        files.write_parquet(there.root, LEAVES, [found], schemas.LEAVES)
    return {"nodes": len(found), "leaves": len(tree.leaf_L)}


def page(root: Path) -> dict[str, float]:
    """Write the page of the deepest tree that one may have."""
    with Inspection.open(root) as tree:
        levels = int((np.cumsum(tree.tree.counts) <= MOST_NODES).sum())
        size, nodes = write_page(tree, root / "tree.html", max(1, levels))
    return {"page": size, "shown": nodes}


def paths(root: Path) -> dict[str, float]:
    """Find the path of a document, and of a query."""
    with Inspection.open(root) as tree:
        query = next(text for level in tree.queries for node in level for text in node)
        return {"steps": len(tree.document("d0")), "asked": len(tree.asked([query])[query])}


STEPS: dict[str, Callable[[Path], dict[str, float]]] = {"described": described, "page": page, "paths": paths}


def measured(step: Callable[[Path], dict[str, float]], root: Path) -> dict[str, float]:
    """What a step says, its seconds, and this process's peak memory."""
    set_threads(THREADS)
    found: dict[str, float] = {}
    seconds = timed(lambda: found.update(step(root)))
    return {**found, "seconds": seconds, "peak": peak_memory()}


def main() -> int:
    """Write, then measure each step in a fresh process; prints a table. The exit code is 1 where memory is exceeded."""
    parser = Options("Inspection of very many documents.", "inspection")
    parser.add_argument("--documents", type=int, default=1_000_000)
    given = parser.parse_args()
    root = given.workdir
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    apart(prepare, root, given.documents)
    told = {name: apart(measured, step, root) for name, step in STEPS.items()}
    whole, shown = told["described"], told["page"]
    print(f"{given.documents:,} documents in {whole['leaves']:,} leaves, {whole['nodes']:,} nodes")
    what = {
        "described": "keywords and documents of every node",
        "page": f"a page of {shown['shown']:,} nodes, {shown['page'] / 1e6:.1f} MB",
        "paths": "paths of a document and a query",
    }
    peaks = {step: told[step]["peak"] / 1e9 for step in STEPS}
    rows = [[what[step], f"{told[step]['seconds']:.1f}", f"{peak:.2f}"] for step, peak in peaks.items()]
    print("\n".join(tables.table(["step", "s", "peak memory, GB"], rows)))
    goal = Goal("most memory of a step, GB", max(peaks.values()), MOST_MEMORY, "most")
    print(goal.line())
    return 0 if goal.met else 1


if __name__ == "__main__":
    sys.exit(main())
