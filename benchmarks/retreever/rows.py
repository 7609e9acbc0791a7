"""The configurations that are measured; settings were chosen on dev (docs/LOG.md)."""

from typing import Any

from benchmarks.retreever.bench import Row

COARSE = (4, 8, 16, 32)
"""Sizes at which the paper compares trees and Matryoshka adapters."""
FULL, LEVEL = 1024, 64
"""Numbers of the deepest level, and of the level that is finished by vectors."""

SHIPPED = Row("tree, as shipped")
ADAPTERS = [
    Row("linear adapter", "linear", {"documents": 0}),
    Row("linear adapter, documents too", "linear"),
    Row("MRL adapter, identity", "matryoshka", {"documents": 0}),
    Row("MRL adapter, PCA", "matryoshka", {"documents": 0}, begin="pca"),
    Row("MRL adapter, identity, documents too", "matryoshka"),
    Row("MRL adapter, PCA, documents too", "matryoshka", begin="pca"),
]
NO_TREE = Row("no tree: softmax of 1,024 outputs", "no tree")
SCHEDULES = [
    Row(f"tree, {schedule}", train={"schedule": schedule})
    for schedule in ("constant", "linear", "exponential", "stochastic", "matryoshka")
]
VARIATION = [
    Row(f"tree, {schedule}, total variation", train={"schedule": schedule, "similarity": "tv"})
    for schedule in ("constant", "stochastic", "matryoshka")
]
PARTS = [
    Row("tree, judged pairs alone", train={"documents": 0}),
    Row("tree, random start", train={"start": "random"}),
    Row("tree, start by k-means", train={"start": "kmeans"}),
    Row("tree, MLP splits", router={"splits": "mlp"}),
    Row("tree, learned propagation", router={"propagation": "learned"}),
]
PAPER: dict[str, Any] = {
    "similarity": "tv",
    "start": "random",
    "router_lr": 4e-4,
    "batch_size": 64,
    "scale": 14,
    "most_scale": 30,
    "documents": 0,
}
PUBLISHED = [
    Row(f"tree as printed, {schedule}", train={**PAPER, "schedule": schedule}, router={"dropout": 0.1})
    for schedule in ("constant", "stochastic")
]
ROWS = [*ADAPTERS, NO_TREE, SHIPPED, *SCHEDULES, *VARIATION, *PARTS, *PUBLISHED]
