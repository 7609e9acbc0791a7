"""HCE's training on a small problem: what it learns from, when its tree grows anew, and how it goes on."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.cluster.document_tree import grow
from rayhier.dataset.documents import Texts
from rayhier.dataset.spans import Spans
from rayhier.embed.encode import TextEncoder
from rayhier.model.encoded import Encoded
from rayhier.model.encoder import ResidualHead
from rayhier.model.router import opened
from rayhier.spec.encoder import EncoderSpec
from rayhier.spec.train import HceTraining
from rayhier.train.examples import Examples
from rayhier.train.hce import Hce, node_router
from rayhier.train.pseudo import SamePairs, StoredPairs
from rayhier.train.tower import HeadTower, TextTower

from ....conftest import WORDS
from ..conftest import M, N, told, unit
from ..driver import Driver, ends_as_if_it_had_not_been_cut_off, run


def spec(**given):
    least = {"epochs": 4, "batch_size": 16, "encoder_lr": 0.01, "temperature": 0.1, "anchor": 0}
    return HceTraining.model_validate({"type": "hce", **least, **given})


def spans(problem):
    row_P = np.repeat(np.arange(0, N, 3), 2)
    drawn = problem.queries[row_P] + np.random.default_rng(5).normal(scale=0.2, size=(len(row_P), M))
    return Spans(unit(drawn), row_P, pa.chunked_array([pa.array([""] * len(row_P))]))


def build(problem, train=None, seed=0, measure=None, judged=True, pseudo=True):
    stored = {**problem.stored(), "pseudo": spans(problem).vector_PM}
    tower = HeadTower(ResidualHead(M), stored, torch.device("cpu"))
    none_P2 = np.empty((0, 2), dtype=np.int64)
    examples = problem.examples() if judged else Examples(problem.documents, problem.documents, none_P2, same=True)
    drawn = StoredPairs(spans(problem)) if pseudo else None
    return Driver(Hce(tower, examples, drawn, train or spec(), seed, measure or problem.exact()))


PAPER = {"form": "paper", "hard_negatives": {"source": "none"}}


@pytest.mark.parametrize(
    ("recluster", "versions"), [("never", [1] * 6), ("improved", [1, 2, 2, 3, 3, 3]), ("every", [1, 2, 3, 4, 5, 6])]
)
def test_when_the_tree_grows_anew(problem, recluster, versions):
    """After a measurement, and not after that of the untrained encoder, whose tree it has."""
    devs = [0.1, 0.4, 0.3, 0.5, 0.5, 0.2]
    hce = build(problem, spec(epochs=5, tree={"recluster": recluster}), measure=told(devs))
    assert [run(hce, epochs).training_tree.version for epochs in range(6)] == versions


def test_a_new_tree_is_that_of_the_vectors_just_measured_and_its_centroids_start_anew(problem):
    hce = run(build(problem, spec(tree={"recluster": "every"})), 1)
    tree = grow(hce.documents(), 8, 0)
    assert hce.learner.kept["leaf"].tolist() == tree.leaf_N.tolist()
    for own, grown in zip(hce.phase.hierarchy.centroids, tree.centroids, strict=True):
        torch.testing.assert_close(own.detach(), torch.from_numpy(grown))
        assert own not in hce.optimizer.state
    assert hce.optimizer.state[hce.tower.module.weight]


@pytest.mark.parametrize(("stop", "judged", "form"), [(0, True, {}), (3, True, PAPER), (1, False, {})])
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(problem, tmp_path, stop, judged, form):
    made = partial(build, problem, spec(tree={"recluster": "improved"}, **form), judged=judged)
    whole = ends_as_if_it_had_not_been_cut_off(made, stop, tmp_path / "encoder.safetensors")
    assert whole.training_tree.version > 1


def test_nodes_are_leaves_visited_by_nearness(problem, monkeypatch):
    monkeypatch.setattr("rayhier.train.hce.ROUNDS", 0)
    hce = run(build(problem, spec(tree={"branching": 6, "levels": 3})))
    hce.restore_best()
    router = node_router(hce.phase)
    assert router.n_leaves == 40
    centroid = torch.nn.functional.normalize(hce.phase.hierarchy.centroids[2].detach(), dim=1)
    queries = torch.from_numpy(problem.queries)
    order = torch.argsort(-(queries @ centroid.T), dim=1, stable=True)[:, :7]
    trained = opened(router)
    assert trained.choose(Encoded(problem.queries), 7).tolist() == order.tolist()
    nearest = torch.from_numpy(hce.documents()) @ centroid.T
    placed, log_p = trained.place(Encoded(hce.documents()), 1)
    assert placed[:, 0].tolist() == nearest.argmax(dim=1).tolist()
    assert (log_p <= 0).all()
    sizes = torch.from_numpy(np.bincount(placed[:, 0], minlength=40))
    torch.testing.assert_close(router.log_size_L, torch.log(sizes + 0.5))


def test_simcse_draws_a_mask_that_a_cached_gradient_draws_again(tiny_model):
    given = EncoderSpec(model=str(tiny_model), max_length=32, precision="float32", train="all")
    texts = {side: Texts(pa.chunked_array([WORDS[:12]])) for side in ("document", "query", "dev")}
    tower = TextTower(TextEncoder(tiny_model, given), "all", texts, torch.float32)
    for module in tower.module.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    pairs, generator, rows = SamePairs(12, tower), np.random.default_rng(0), np.array([4, 5, 6])
    assert pairs.chosen(rows, generator).tolist() == [4, 5, 6]
    first, again = tower.encode("pseudo", rows), tower.encode("pseudo", rows)
    assert torch.equal(first, again)
    assert not torch.allclose(first, tower.encode("document", rows))
    assert not tower.module.training
    pairs.chosen(rows, generator)
    assert not torch.allclose(tower.encode("pseudo", rows), first)
