"""Makes a router whose leaves are nodes of HCE's tree (ours)."""

import numpy as np
import torch
from torch.nn import functional as F

from rayhier.cluster.kmeans import refined
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import place_all
from rayhier.train.hce.hce import Hce

ROUNDS = 3
"""Iterations of k-means that move the trained centroids to the documents' trained vectors."""


@torch.no_grad()
def node_router(trained: Hce) -> LearnedIvfRouter:
    """Make a learned IVF router, without training of its own, from the lowest level of HCE's trained centroids.

    Trained centroids separate documents but need not lie among them, so rounds of k-means begin at the centroids. A
    document's leaf is that of the centroid nearest to its trained vector, not its node in the tree.
    """
    centroid_LM = F.normalize(trained.hierarchy.centroids[-1].detach().cpu(), dim=1)
    vector_NM = trained.documents()
    if len(vector_NM):
        centroid_LM = torch.from_numpy(refined(vector_NM, centroid_LM.numpy(), ROUNDS))
    leaves, dimension = centroid_LM.shape
    router = LearnedIvfRouter(dimension, leaves, 1, 0)
    router.begin(centroid_LM)
    if len(vector_NM):
        leaf_N = place_all(router, Encoded.of(vector_NM), 1)[0][:, 0].numpy()
        router.log_size_L.copy_(torch.from_numpy(np.log(np.bincount(leaf_N, minlength=leaves) + 0.5)))
    return router
