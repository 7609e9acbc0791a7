"""Analytic gradients are numeric ones, from the losses through head and router; every tensor learns."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.model.ehi import Batch, EhiRouter, ehi_losses
from rayhier.model.encoder import ResidualHead
from rayhier.spec.train.ehi import Loss


class Model(nn.Module):
    """Head and router of one step, with every loss on."""

    def __init__(self, dimension, branching, height, residual="relu"):
        super().__init__()
        self.head = ResidualHead(dimension)
        self.router = EhiRouter(dimension, branching, height, residual)
        self.spec = Loss(semantic=0.7, indexing=0.9, intra_leaf=0.6)

    def forward(self, query, positive, hard):
        query, positive, hard = self.head(query), self.head(positive), self.head(hard)
        path, mined = self.router.path_embedding(positive), torch.arange(len(query)) % 3 > 0
        negative = ~torch.eye(len(query), dtype=torch.bool)
        batch = Batch(
            query_NM=query,
            positive_NM=positive,
            hard_NM=hard,
            hard_N=mined,
            query_NT=self.router.path_embedding(query),
            positive_NT=path,
            document_DM=positive,
            document_DT=path,
            negative_ND=negative,
            pairs=negative.sum(),
            hard=mined.sum(),
        )
        return ehi_losses(batch, self.spec).total


def texts(count, dimension, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [
        nn.functional.normalize(torch.randn(count, dimension, generator=generator, dtype=dtype), dim=1)
        for _ in range(3)
    ]


@pytest.mark.parametrize(("height", "residual"), [(1, "relu"), (2, "relu"), (2, "none")])
def test_gradcheck(height, residual):
    torch.manual_seed(0)
    model = Model(4, 3, height, residual).double()
    values = {name: torch.randn_like(value, requires_grad=True) for name, value in model.named_parameters()}
    data = texts(5, 4, torch.float64)

    def loss(*given):
        return functional_call(model, dict(zip(values, given, strict=True)), tuple(data))

    assert torch.autograd.gradcheck(loss, tuple(values.values()))


def test_every_number_of_a_warm_started_model_learns():
    torch.manual_seed(0)
    model, data = Model(8, 6, 1), texts(48, 8)
    model.router.warm_start(torch.from_numpy(spherical_kmeans(np.asarray(data[1]), 6, seed=0)))
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    model(*data).backward()
    optimizer.step()
    assert set(before) == {"head.weight", "router.W.0.weight", "router.U.0.weight"}
    assert all((value != before[name]).all() for name, value in model.named_parameters())
