"""EHI's losses against torch's triplet loss on explicit pairs and against plain loops."""

from dataclasses import replace

import pytest
import torch
from torch.nn import TripletMarginWithDistanceLoss

from rayhier.model.ehi import (
    Batch,
    EhiRouter,
    ehi_losses,
    intra_leaf_product,
    intra_leaf_triplet,
    semantic_loss,
    unlike_pairs,
)
from rayhier.spec.train.ehi import MARGIN, UNLIKE, Loss

N, M, T = 7, 5, 6


def dot_triplet(anchor, positive, negative, margin):
    """torch's, one triplet at a time, with distance = -dot."""
    loss = TripletMarginWithDistanceLoss(
        distance_function=lambda a, b: -(a * b).sum(-1), margin=margin, reduction="none"
    )
    return loss(anchor[None], positive[None], negative[None])[0]


def unit(generator, *shape):
    return torch.nn.functional.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(3)
    negative = torch.rand(N, N, generator=generator) < 0.7
    negative.fill_diagonal_(False)
    positive, path = unit(generator, N, M), torch.rand(N, T, generator=generator, dtype=torch.float64)
    hard = torch.tensor([True, False, True, True, False, True, True])
    return Batch(
        query_NM=unit(generator, N, M),
        positive_NM=positive,
        hard_NM=unit(generator, N, M),
        hard_N=hard,
        query_NT=torch.rand(N, T, generator=generator, dtype=torch.float64),
        positive_NT=path,
        document_DM=positive,
        document_DT=path,
        negative_ND=negative,
        pairs=negative.sum(),
        hard=hard.sum(),
    )


def pairs(batch):
    return [(i, j) for i in range(N) for j in range(N) if batch.negative_ND[i, j]]


def mean(values):
    return torch.stack(values).mean()


@pytest.mark.parametrize("has_hard", [True, False])
def test_semantic_loss_counts_one_hard_negative_beside_the_others(batch, has_hard):
    q, d, hard = batch.query_NM, batch.positive_NM, batch.hard_NM
    values = [dot_triplet(q[i], d[i], d[j], 0.3) for i, j in pairs(batch)]
    values += [dot_triplet(q[i], d[i], hard[i], 0.3) for i in range(N) if batch.hard_N[i] and has_hard]
    bare = replace(batch, hard_NM=None, hard_N=None, hard=torch.tensor(0))
    torch.testing.assert_close(semantic_loss(batch if has_hard else bare, 0.3), mean(values))


@pytest.mark.parametrize("unlike", [-1.0, 0.2, 1.0])
def test_intra_leaf_product_is_equation_5_and_triplet_is_algorithm_1(batch, unlike):
    d, path = batch.positive_NM, batch.positive_NT
    values = [path[i] @ path[j] * float(d[i] @ d[j] < unlike) for i, j in pairs(batch)]
    torch.testing.assert_close(intra_leaf_product(batch, unlike_pairs(batch, unlike)), mean(values))
    triplets = [dot_triplet(path[i], path[i], path[j], MARGIN) * float(d[i] @ d[j] < unlike) for i, j in pairs(batch)]
    torch.testing.assert_close(intra_leaf_triplet(batch, unlike_pairs(batch, unlike), MARGIN), mean(triplets))


def test_whether_documents_are_alike_is_a_matter_of_direction(batch):
    longer = replace(batch, positive_NM=3 * batch.positive_NM, document_DM=3 * batch.document_DM)
    assert unlike_pairs(batch, 0.2).any()
    assert torch.equal(unlike_pairs(longer, 0.2), unlike_pairs(batch, 0.2))


def test_the_total_is_the_weighted_sum_of_the_three(batch):
    spec = Loss(semantic=0.2, indexing=0.8, intra_leaf=0.3)
    found = ehi_losses(batch, spec)
    q, d = batch.query_NT, batch.positive_NT
    torch.testing.assert_close(found.semantic, semantic_loss(batch, MARGIN))
    torch.testing.assert_close(found.indexing, mean([dot_triplet(q[i], d[i], d[j], MARGIN) for i, j in pairs(batch)]))
    torch.testing.assert_close(found.intra_leaf, intra_leaf_product(batch, unlike_pairs(batch, UNLIKE)))
    torch.testing.assert_close(found.total, 0.2 * found.semantic + 0.8 * found.indexing + 0.3 * found.intra_leaf)


def test_a_batch_without_negatives_costs_nothing(batch):
    none = {"negative_ND": torch.zeros(N, N, dtype=torch.bool), "hard_N": torch.zeros(N, dtype=torch.bool)}
    assert ehi_losses(replace(batch, **none, pairs=torch.tensor(0), hard=torch.tensor(0)), Loss()).total == 0


@pytest.mark.parametrize("residual", ["relu", "none"])
def test_gradients_are_numeric_ones_through_the_router_too(batch, residual):
    torch.manual_seed(0)
    router = EhiRouter(M, 2, 3, residual).double()

    def total(query, document, hard):
        path = router.path_embedding(document)
        vectors = {"query_NM": query, "positive_NM": document, "document_DM": document, "hard_NM": hard}
        paths = {"query_NT": router.path_embedding(query), "positive_NT": path, "document_DT": path}
        return ehi_losses(replace(batch, **vectors, **paths), Loss(semantic=0.7, indexing=0.9, intra_leaf=0.6)).total

    given = [x.clone().requires_grad_() for x in (batch.query_NM, batch.positive_NM, batch.hard_NM)]
    assert torch.autograd.gradcheck(total, given)
    total(*given).backward()
    assert all(parameter.grad.abs().max() > 1e-4 for parameter in router.parameters())
