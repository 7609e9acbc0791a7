"""InfoNCE, a loss that makes a query nearer to its document than to others.

van den Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018.

Shapes: N queries, C documents that every query is compared with, S documents that a single query is compared with, M
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
    """Compute InfoNCE: the cross-entropy of e^(q·d/τ) against each query's document, summed over queries.

    `target_N` is the column in `document_CM` of each query's document. `spared_NC` is True for a query's further
    answers, which are left out. `own_NS` are the inner products of each query with documents that no other query is
    compared with, -inf where a query has fewer.

    >>> query, documents = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> info_nce(query, documents, torch.tensor([0]), torch.zeros(1, 2, dtype=torch.bool), 1.0)  # log(1 + 1/e)
    tensor(0.3133)
    """
    score_NC = (query_NM @ document_CM.T).masked_fill(spared_NC, -torch.inf)
    score_NX = score_NC if own_NS is None else torch.cat([score_NC, own_NS], dim=1)
    return F.cross_entropy(score_NX / temperature, target_N, reduction="sum")


def anchor_loss(trained_NM: Tensor, base_NM: Tensor) -> Tensor:
    """Compute the sum over documents of 1 - cosine(trained vector, base encoder's vector); both are [n, m].

    >>> anchor_loss(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor(1.)
    """
    return (1 - F.cosine_similarity(trained_NM, base_NM, dim=1)).sum()
