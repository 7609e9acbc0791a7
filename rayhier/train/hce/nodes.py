"""The router whose leaves are HCE's nodes: the lowest level that training tells apart, visited by q·c (ours)."""

import numpy as np
import torch
from torch.nn import functional as F

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import place_all
from rayhier.spec.router import HceRouting
from rayhier.train.hce.hce import Hce


@torch.no_grad()
def node_router(trained: Hce, spec: HceRouting) -> LearnedIvfRouter:
    """Make a router of the trained centroids: a learned IVF that nothing taught, of the nodes of level M.

    A document lies with the nearest centroid, where its trained vector is now, not where the tree had it.
    """
    centroid_LM = F.normalize(trained.hierarchy.centroids[-1].detach().cpu(), dim=1)
    leaves, dimension = centroid_LM.shape
    router = LearnedIvfRouter(dimension, leaves, 1, 0, min(spec.screened(leaves), dimension))
    router.begin(centroid_LM)
    documents = Encoded.of(trained.documents())
    if len(documents):
        leaf_N = place_all(router, documents, 1)[0][:, 0].numpy()
        router.log_size_L.copy_(torch.from_numpy(np.log(np.bincount(leaf_N, minlength=leaves) + 0.5)))
    return router
