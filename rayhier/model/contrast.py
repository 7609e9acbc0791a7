"""InfoNCE: a query picks its document among others (van den Oord et al., "Contrastive Predictive Coding", 2018).

Shapes: N queries, C documents that all of them are compared with, S documents that one query is compared with, M
embedding size.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def info_nce(
    query_NM: Tensor,
    document_CM: Tensor,
    target_N: Tensor,
    spared_NC: Tensor,
    temperature: float,
    own_NS: Tensor | None = None,
) -> Tensor:
    """Sum over queries -log of the share of e^(q·d/τ) that falls to the query's document.

    `target_N` is the column of each query's document; `spared_NC` is True for further answers, which are left out.
    `own_NS` are inner products with documents for that query alone, -inf where it has fewer.

    >>> query, documents = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> info_nce(query, documents, torch.tensor([0]), torch.zeros(1, 2, dtype=torch.bool), 1.0)  # log(1 + 1/e)
    tensor(0.3133)
    """
    score_NC = (query_NM @ document_CM.T).masked_fill(spared_NC, -torch.inf)
    every_NX = score_NC if own_NS is None else torch.cat([score_NC, own_NS], dim=1)
    return F.cross_entropy(every_NX / temperature, target_N, reduction="sum")


def anchor_loss(trained_NM: Tensor, base_NM: Tensor) -> Tensor:
    """Sum over documents 1 - the cosine between the trained vector and the base vector.

    >>> anchor_loss(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor(1.)
    """
    return (1 - F.cosine_similarity(trained_NM, base_NM, dim=1)).sum()
