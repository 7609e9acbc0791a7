"""A tree's router as its training begins: what follows from the seed."""

import numpy as np
import pytest
import torch

from rayhier.dataset.documents import Documents
from rayhier.dataset.queries import Queries
from rayhier.model.encoder import ResidualHead
from rayhier.spec.router import RetreeverRouting
from rayhier.spec.train import RetreeverTraining
from rayhier.train.examples import Examples
from rayhier.train.retreever.dev import SizesMeasure
from rayhier.train.retreever.grow import grow
from rayhier.train.tower import HeadTower

N, M, D = 60, 12, 3


@pytest.fixture
def grown(unit):
    """`grown(seed)`: tensors of a router with learned propagation, of a tree whose phases run no pass."""
    rng = np.random.default_rng(0)
    document_NM, query_QM = unit(rng, N, M), unit(rng, 10, M)
    ids = [f"d{n}" for n in range(N)]
    dev = Queries(["q"], query_QM[:1], {"q": {"d0": 1}})

    def grow_tree(seed):
        stored = {"query": query_QM, "document": document_NM, "dev": dev.vector_QM}
        tower = HeadTower(ResidualHead(M), stored, torch.device("cpu"))
        examples = Examples(query_QM, document_NM, np.array([[n, n] for n in range(10)]))
        routing = RetreeverRouting(type="retreever", depth=D, propagation="learned")
        spec, measure = RetreeverTraining(type="retreever", documents=0), SizesMeasure(dev, Documents(ids, document_NM))
        return grow(tower, examples, routing, spec, seed, measure, lambda *_: None).state_dict()

    return grow_tree


def test_a_learned_propagation_starts_from_the_seed(grown):
    first, again, other = grown(1), grown(1), grown(2)
    for name, tensor in first.items():
        torch.testing.assert_close(again[name], tensor, rtol=0, atol=0)
    (drawn,) = (name for name in first if name.endswith("propagation.weight_LDH"))
    assert (first[drawn] != other[drawn]).all()


def test_drawing_a_router_leaves_the_process_s_generator_alone(grown):
    torch.manual_seed(3)
    expected = torch.randn(4)
    torch.manual_seed(3)
    grown(1)
    torch.testing.assert_close(torch.randn(4), expected, rtol=0, atol=0)
