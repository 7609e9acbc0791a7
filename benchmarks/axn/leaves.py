"""Search inside the leaves that a router visits, beside the same search over all documents."""

from pathlib import Path

import numpy as np

from benchmarks.axn.rows import BIASED, BIASED_BOTH, RIDGE, RIDGE_BOTH, RNR, Setting, measured, named, recall
from benchmarks.axn.world import World
from benchmarks.collection import made
from benchmarks.leaf_maps import rows as rows_of
from rayhier.arrays import Ints
from rayhier.dataset.queries import Queries
from rayhier.run import run
from rayhier.search.model import Model
from rayhier.storage.leaf_map import BUILT, LeafMap

BUDGET, TIMES = 100, (4, 8, 16)
"""Calls of a query, and documents that visited leaves hold, at least, as multiples of these."""
OTHER, ASKED = "acl_title2abs", 100
"""The larger collection, and its test queries that are asked."""


def visited(world: World, queries: Queries, least: int) -> list[Ints]:
    """Rows of the documents in the leaves that each query visits: the fewest leaves that hold as many documents."""
    run(world.plan, ("train", "index"))
    seed = world.plan.spec.evaluate.seeds[0]
    index, trained = made(world.plan, "index", "model", seed=seed)
    model, leaf_map = Model.open(trained, world.plan.spec), LeafMap.open(index.root, BUILT)
    row_of = {name: row for row, name in enumerate(world.documents.ids)}
    held: dict[int, list[int]] = {}
    for name, leaf in zip(*rows_of(leaf_map), strict=True):
        held.setdefault(int(leaf), []).append(row_of[name])
    encoded = model.encode_stored(queries.vector_QM, lambda: queries.texts)
    leaves_QB, _ = model.route(encoded, model.router.n_leaves)
    found = []
    for leaves in leaves_QB.tolist():
        rows: set[int] = set()
        for leaf in leaves:
            rows.update(held.get(leaf, []))
            if len(rows) >= least:
                break
        found.append(np.array(sorted(rows)))
    return found


def beside_all(world: World) -> dict[str, dict[str, float]]:
    """SciFact: Top-10@100 of rows over all documents, and in the visited leaves alone, of the best over all."""
    rows, asked = (RNR, RIDGE, RIDGE_BOTH, BIASED, BIASED_BOTH), [(10, BUDGET)]
    everywhere = Setting(world, world.tested, 0.0, leave_one_out=False)
    over_all = {row.name: measured(everywhere, row, asked).mean(named(10, BUDGET)) for row in rows}
    found = {}
    for times in TIMES:
        pools = visited(world, world.tested, times * BUDGET)
        inside = Setting(world, world.tested, 0.0, leave_one_out=False, pool=pools.__getitem__)
        share = float(np.mean([len(pool) for pool in pools])) / len(world.texts)
        for row in rows:
            own = measured(inside, row, asked).mean(named(10, BUDGET))
            found[f"{row.name}; {times} times the calls"] = {"all": over_all[row.name], "leaves": own, "visited": share}
    return found


def elsewhere(workdir: Path, trained: Path) -> dict[str, float]:
    """acl_title2abs: Top-1@100 and Top-10@100 in the visited leaves, every document of which is scored.

    Texts are encoded as far as pairs are read, 128 tokens, which is twice as fast.
    """
    none = [f"{part}=null" for part in ("cross_encoder.train", "scores", "factors", "search.rerank")]
    more = [f"cross_encoder.model={trained}", "cross_encoder.beside=0", "encoder.max_length=128", *none]
    world = World(workdir, OTHER, more)
    queries = world.queries("test")
    queries = queries.some(np.arange(len(queries)) < ASKED)
    pools = visited(world, queries, TIMES[0] * BUDGET)
    score_QN = np.full((ASKED, len(world.texts)), -np.inf)
    for query, pool in enumerate(pools):
        score_QN[query, pool] = world.best_scores(queries.some(np.arange(ASKED) == query), pool[None])[0]
    setting = Setting(world, queries, 0.0, leave_one_out=False, pool=pools.__getitem__, scores=score_QN)
    found = {"visited": float(np.mean([len(pool) for pool in pools])) / len(world.texts)}
    for row in (RNR, RIDGE, RIDGE_BOTH):
        order = setting.run(row, BUDGET)
        found |= {f"{row.name}: Top-{k}@{BUDGET}": float(recall(order, score_QN, k).mean()) for k in (1, 10)}
    return found
