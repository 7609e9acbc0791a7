"""Where a router begins: as k-means, one level or several (ours; the paper starts cold)."""

import numpy as np
import torch
from torch.nn import functional as F

from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.cluster.tree import hierarchical_kmeans
from rayhier.model.ehi import EhiRouter
from rayhier.storage.columns import Floats

SAMPLE = 200_000
"""Documents at most that a warm start reads."""
STEPS, BATCH, RATE = 1_000, 512, 3e-3


def warm_start(router: EhiRouter, vectors_NM: Floats, seed: int) -> None:
    """Make `router` answer as spherical k-means does: its centroids, or, of a taller tree, fitted to its paths."""
    rng = np.random.default_rng(seed)
    if len(vectors_NM) > SAMPLE:
        vectors_NM = vectors_NM[np.sort(rng.choice(len(vectors_NM), SAMPLE, replace=False))]
    if router.height == 1:
        router.warm_start(torch.from_numpy(spherical_kmeans(vectors_NM, router.branching, seed)))
        return
    path_NH, centroids = hierarchical_kmeans(vectors_NM, router.branching, router.height, seed)
    router.warm_start(torch.from_numpy(centroids))
    fit(router, vectors_NM, path_NH, rng)


def fit(router: EhiRouter, vectors_NM: Floats, path_NH: np.ndarray, rng: np.random.Generator) -> None:
    """Cross-entropy of every level to the children that paths take, each level given the true path above it."""
    x_NM, path = torch.from_numpy(vectors_NM), torch.from_numpy(path_NH)
    optimizer = torch.optim.AdamW(router.parameters(), lr=RATE, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    for _ in range(STEPS):
        rows = torch.from_numpy(rng.integers(0, len(x_NM), min(BATCH, len(x_NM))))
        optimizer.zero_grad()
        levels = router.given_path(x_NM[rows], path[rows])
        loss = sum(F.nll_loss(log_p, path[rows, level]) for level, log_p in enumerate(levels))
        loss.backward()  # type: ignore[union-attr]
        optimizer.step()
        schedule.step()
