"""Start of EHI's router at k-means, for one level or several (ours; the paper starts at random)."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Floats
from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.cluster.tree import hierarchical_kmeans
from rayhier.model.ehi import WARM_SCALE, EhiRouter

MOST_READ = 200_000
"""Most documents that the start reads; of more, a random sample."""
STEPS, BATCH, RATE = 1_000, 512, 3e-3


def warm_start(router: EhiRouter, vectors_NM: Floats, seed: int) -> None:
    """Make `router` send vectors [n, m] where spherical k-means would.

    A router of one level takes the centroids as weights; a taller router is trained to agree with hierarchical k-means.
    """
    rng = np.random.default_rng(seed)
    if len(vectors_NM) > MOST_READ:
        vectors_NM = vectors_NM[np.sort(rng.choice(len(vectors_NM), MOST_READ, replace=False))]
    # 20 x cosine, also where vectors are longer than 1.
    length = float(np.linalg.norm(vectors_NM, axis=1).mean())
    if router.height == 1:
        router.warm_start(torch.from_numpy(spherical_kmeans(vectors_NM, router.branching, seed) / length))
        return
    tree = hierarchical_kmeans(vectors_NM, router.branching, router.height, seed)
    centroids = [torch.from_numpy(level / length) for level in tree.centroids]
    router.warm_start(centroids[0][0])
    fit(router, torch.from_numpy(vectors_NM), centroids, rng)


def fit(router: EhiRouter, x_NM: Tensor, centroids: list[Tensor], rng: np.random.Generator) -> None:
    """Train each level of the router to softmax(20 cos) over its k-means centroids, along paths drawn from it.

    `centroids` are those of each level [nodes above, branching, m]. Paths are drawn since a beam also expands nodes
    that are not the best, and the router must find the better child there too.
    """
    draw = torch.Generator().manual_seed(int(rng.integers(2**31)))
    optimizer = torch.optim.AdamW(router.parameters(), lr=RATE, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    for _ in range(STEPS):
        rows = torch.from_numpy(rng.integers(0, len(x_NM), min(BATCH, len(x_NM))))
        path_NH, targets = walk(x_NM[rows], centroids, draw)
        optimizer.zero_grad()
        levels = router.given_path(x_NM[rows], path_NH)
        losses = [F.cross_entropy(log_p, target) for log_p, target in zip(levels, targets, strict=True)]
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def walk(x_NM: Tensor, centroids: list[Tensor], draw: torch.Generator) -> tuple[Tensor, list[Tensor]]:
    """Draw paths of vectors [n, m] down a k-means tree: children [n, height], and each level's probabilities.

    A child is drawn with probability softmax(20 cos) over the centroids below the node reached before: [n, branching].
    """
    node_N = torch.zeros(len(x_NM), dtype=torch.long)
    children, targets = [], []
    for level in centroids:
        centroid_NBM = level[node_N]
        logits_NB = WARM_SCALE * torch.einsum("nm,nbm->nb", x_NM, centroid_NBM)
        missing_NB = ~centroid_NBM.any(dim=2)
        missing_NB[missing_NB.all(dim=1)] = False
        targets.append(logits_NB.masked_fill(missing_NB, -torch.inf).softmax(dim=1))
        children.append(torch.multinomial(targets[-1], 1, generator=draw)[:, 0])
        node_N = node_N * level.shape[1] + children[-1]
    return torch.stack(children, dim=1), targets
