"""The configurations that are measured; settings were chosen on dev (docs/LOG.md)."""

from typing import Any

from benchmarks.retreever.bench import Row

LEVEL = 64
"""Numbers of the level that is finished by vectors."""

UNTOUCHED = Row("untouched encoder", "vectors", base=True)
TRAINED = Row("trained encoder", "vectors")
MRL = Row("MRL adapter, PCA, documents ask too", "matryoshka", begin="pca")
"""The adapter whose directions trees start at."""
LINEAR = Row("linear adapter", "linear", {"documents": 0})
ADAPTERS = [
    LINEAR,
    Row("linear adapter, documents ask too", "linear"),
    Row("MRL adapter, identity", "matryoshka", {"documents": 0}),
    Row("MRL adapter, PCA", "matryoshka", {"documents": 0}, begin="pca"),
    Row("MRL adapter, identity, documents ask too", "matryoshka"),
    MRL,
    Row("MRL adapter, PCA, documents ask too, anchored", "matryoshka", begin="pca", anchored=True),
]
NO_TREE = Row("no tree, softmax of 1,024 outputs", "no tree")
SHIPPED = Row("tree, as shipped (Matryoshka)")
CONSTANT = Row("tree, constant", train={"schedule": "constant"})
STOCHASTIC = Row("tree, stochastic", train={"schedule": "stochastic"})
MLP = Row("tree, MLP splits", train={"router_lr": 1e-3}, router={"splits": "mlp"})
KMEANS = Row("hierarchical k-means", "k-means", {"similarity": "tv"})
MIXTURES = Row("Gaussian mixtures", "mixtures", {"similarity": "tv"})
CORE = [
    UNTOUCHED,
    TRAINED,
    *ADAPTERS,
    NO_TREE,
    SHIPPED,
    CONSTANT,
    STOCHASTIC,
    MLP,
]
"""Measured with every seed."""

VARIATION = Row("tree, Matryoshka, total variation", train={"similarity": "tv"})
PAPER: dict[str, Any] = {
    "similarity": "tv",
    "start": "random",
    "router_lr": 4e-4,
    "batch_size": 64,
    "scale": 14,
    "most_scale": 30,
    "documents": 0,
}
"""The paper's rate, batch, similarity and bounds of the scale; its splits attend to tokens, these are linear."""
FROM_RANDOM = {
    schedule: Row(f"tree, random start, {schedule}", train={"start": "random", "schedule": schedule})
    for schedule in ("constant", "stochastic")
}
"""Schedules from a start that knows nothing, as in the paper."""
NEEDED = [KMEANS, MIXTURES, VARIATION, *FROM_RANDOM.values()]
"""Measured with one seed on every collection."""
ONCE = [
    *NEEDED,
    Row("tree, linear schedule", train={"schedule": "linear"}),
    Row("tree, exponential schedule", train={"schedule": "exponential"}),
    Row("tree, constant, total variation", train={"schedule": "constant", "similarity": "tv"}),
    Row("tree, stochastic, total variation", train={"schedule": "stochastic", "similarity": "tv"}),
    Row("tree, judged pairs alone", train={"documents": 0}),
    Row("tree, random start", train={"start": "random"}),
    Row("tree, no anchor", train={"anchor": 0}),
    Row("tree, start by k-means", train={"start": "kmeans"}),
    Row("tree, learned propagation", router={"propagation": "learned"}),
    Row("tree, a tenth of the scores dropped", router={"dropout": 0.1}),
    Row("tree as printed, constant", train={**PAPER, "schedule": "constant"}, router={"dropout": 0.1}),
    Row("tree as printed, stochastic", train={**PAPER, "schedule": "stochastic"}, router={"dropout": 0.1}),
]
"""Measured with one seed on the smaller collection."""
SCHEDULES = ["tree, constant", "tree, linear schedule", "tree, exponential schedule", "tree, stochastic", SHIPPED.name]

FEW: dict[str, Any] = {"epochs": 4, "measure_every": 2}
"""Training of 3,000 steps at most."""
SHALLOW = {"depth": 8}
ATTENDING = Row("attention to tokens", train=FEW, router={**SHALLOW, "splits": "attention"})
BESIDE_ATTENDING = [
    Row("linear splits", train=FEW, router=SHALLOW),
    Row("linear splits, random start", train={**FEW, "start": "random"}, router=SHALLOW),
    Row("MRL adapter, PCA, as many steps", "matryoshka", FEW, begin="pca"),
]
