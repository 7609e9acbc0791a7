"""The training loop on a small problem: what it learns, what it keeps, and how it goes on."""

from functools import partial

import numpy as np
import pytest
import torch

from rayhier.model.encoder import ResidualHead
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import EhiTraining
from rayhier.train.ehi import MINING_BEAM, Joint
from rayhier.train.tower import HeadTower

from ..conftest import M
from ..driver import Driver, ends_as_if_it_had_not_been_cut_off, run

ROUTER = EhiRouting(type="ehi", branching=12)
COLD_TALL = EhiRouting(type="ehi", branching=3, height=2, warm_start="none")


def spec(epochs=4, **hard):
    return EhiTraining(type="ehi", epochs=epochs, batch_size=16, encoder_lr=0.02, hard_negatives=hard)


def build(problem, train=None, router=ROUTER, seed=0, measure=None):
    tower = HeadTower(ResidualHead(M), problem.stored(), torch.device("cpu"))
    return Driver(Joint(tower, problem.examples(), router, train or spec(), seed, measure or problem.measure()))


def test_noted_cells_are_the_means_of_the_leaves_as_trained(problem):
    trainer = run(build(problem, spec(epochs=2)))
    trainer.phase.finish()
    now = trainer.snapshot()
    leaf_N = now.leaves(now.document_NM, 1)[:, 0]
    assert np.abs(now.document_NM - problem.documents).max() > 0.01
    for leaf, centroid in enumerate(trainer.router.cells.centroid_LM.numpy()):
        mean = now.document_NM[leaf_N == leaf].sum(axis=0)
        np.testing.assert_allclose(centroid, mean / max(np.linalg.norm(mean), 1e-12), atol=1e-5)


@pytest.mark.parametrize(
    ("train", "router", "stop"),
    [
        (spec(), ROUTER, 2),
        (spec(source="positive_leaf"), COLD_TALL, 2),
        (spec(source="exact"), ROUTER, 0),
    ],
)
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(problem, tmp_path, train, router, stop):
    made = partial(build, problem, train, router)
    ends_as_if_it_had_not_been_cut_off(made, stop, tmp_path / "joint.safetensors")


def test_a_known_positive_is_never_a_negative(problem):
    trainer = build(problem)
    pairs = trainer.examples.pair_P2
    positives = set(map(tuple, pairs.tolist()))
    found = trainer.batch(np.arange(len(pairs)), np.full(len(pairs), -1))[0].negative_ND
    wanted = [[(query, document) not in positives for document in pairs[:, 1]] for query in pairs[:, 0]]
    assert found.tolist() == wanted
    assert not found.diagonal().any()
    assert (~found).sum() > len(pairs)


@pytest.mark.parametrize("source", ["query_leaves", "positive_leaf"])
def test_where_hard_negatives_come_from(problem, source):
    trainer = build(problem, spec(source=source))
    trainer.mine(trainer.search())
    now = trainer.snapshot()
    leaf_of = now.leaves(now.document_NM, 1)[:, 0]
    positives = set(map(tuple, trainer.examples.pair_P2.tolist()))
    assert (trainer.mined >= 0).any(axis=1).mean() > 0.9
    for (query, document), mined in zip(trainer.examples.pair_P2, trainer.mined, strict=True):
        leaves = now.leaves(trainer.side("query")[[query]], MINING_BEAM)[0]
        allowed = leaves if source == "query_leaves" else leaf_of[[document]]
        for row in mined[mined >= 0]:
            assert leaf_of[row] in allowed
            assert (query, row) not in positives
