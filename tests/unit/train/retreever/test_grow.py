"""A tree's training as it begins: what follows from the seed, what dev searches, and the factor of similarities."""

import numpy as np
import pytest
import torch

from rayhier.dataset.documents import Documents
from rayhier.dataset.queries import Queries
from rayhier.model.encoder import ResidualHead
from rayhier.spec.router import RetreeverRouting
from rayhier.spec.train import RetreeverTraining
from rayhier.train.examples import Examples
from rayhier.train.retreever.dev import SizesMeasure, searched
from rayhier.train.retreever.grow import grow
from rayhier.train.retreever.matching import Scale
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


RESULTS = [f"d{n}" for n in range(20)]
QUERIES = Queries(["a", "b"], np.zeros((2, 4), np.float32), {"a": {"d3": 1, "d17": 1}, "b": {"d3": 1, "d8": 2}})
ANSWERS = {3, 8, 17}


@pytest.mark.parametrize("most", [4, 10, 19])
def test_a_sample_has_exactly_so_many_rows_and_all_answers(most):
    rows = searched(QUERIES, RESULTS, most).tolist()
    assert len(rows) == most
    assert rows == sorted(set(rows))
    assert set(rows) >= ANSWERS
    assert searched(QUERIES, RESULTS, 2).tolist() == sorted(ANSWERS), "all answers, though they are more"
    assert searched(QUERIES, RESULTS, 20).tolist() == list(range(20))


@pytest.mark.parametrize(("start", "most"), [(20.0, 100.0), (0.5, 0.75)])
def test_the_scale_starts_where_it_is_told_and_never_exceeds_the_greatest(start, most):
    scale = Scale(start, most)
    assert scale().item() == pytest.approx(start)
    with torch.no_grad():
        scale.log.fill_(50.0)
    assert scale().item() == pytest.approx(most)
    scale().backward()
    assert scale.log.grad.item() == pytest.approx(most)
