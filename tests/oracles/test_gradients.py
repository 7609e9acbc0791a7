"""Analytic gradients are numeric ones, from the losses through head and router."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from rayhier.model.ehi import Batch, EhiRouter, ehi_losses
from rayhier.model.encoder import ResidualHead
from rayhier.spec.train.ehi import Loss

N, M = 5, 4


class Model(nn.Module):
    """Head and router of one step, with every loss on."""

    def __init__(self, height, residual):
        super().__init__()
        self.head, self.router = ResidualHead(M), EhiRouter(M, 3, height, residual)

    def forward(self, query, positive, hard):
        query, positive, hard = self.head(query), self.head(positive), self.head(hard)
        path, mined = self.router.path_embedding(positive), torch.arange(N) % 3 > 0
        negative = ~torch.eye(N, dtype=torch.bool)
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
        return ehi_losses(batch, Loss(semantic=0.7, indexing=0.9, intra_leaf=0.6)).total


@pytest.mark.parametrize(("height", "residual"), [(1, "relu"), (2, "relu"), (2, "none")])
def test_gradcheck(height, residual):
    torch.manual_seed(0)
    model = Model(height, residual).double()
    values = {name: torch.randn_like(value, requires_grad=True) for name, value in model.named_parameters()}
    data = tuple(nn.functional.normalize(torch.randn(3, N, M, dtype=torch.float64), dim=2))

    def loss(*given):
        return functional_call(model, dict(zip(values, given, strict=True)), data)

    assert torch.autograd.gradcheck(loss, tuple(values.values()))
    gradients = torch.autograd.grad(loss(*values.values()), tuple(values.values()))
    assert all(gradient.abs().max() > 1e-4 for gradient in gradients)
