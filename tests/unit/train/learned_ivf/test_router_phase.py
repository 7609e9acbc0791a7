"""The second half on a small problem: k-means leaves, evened out, and queries taught which hold their answers."""

from functools import partial

import numpy as np
import pytest
import torch

from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.dataset.documents import Documents
from rayhier.model.encoded import Encoded
from rayhier.model.encoder import ResidualHead
from rayhier.model.learned_ivf import SCALE, LearnedIvfRouter, reach_loss
from rayhier.model.placing import place
from rayhier.model.router import opened
from rayhier.spec.router import LearnedIvfRouting
from rayhier.train.contrast import Contrast
from rayhier.train.data import document_pairs
from rayhier.train.learned_ivf import router_phase as phase_of_routers
from rayhier.train.learned_ivf.kmeans_start import make_router, settle
from rayhier.train.learned_ivf.router_phase import RouterPhase, Targets, build_router_phase, fit_scale
from rayhier.train.tower import HeadTower

from ....toys import job
from ..driver import Driver, ends_as_if_it_had_not_been_cut_off, run

LEAVES, RATE = 12, 5e-3
FLAT = LearnedIvfRouting(type="learned_ivf", branching=LEAVES)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    monkeypatch.setattr(phase_of_routers, "BATCH", 32)
    monkeypatch.setattr(phase_of_routers, "RATE", RATE)


def spec_of(router=FLAT, **index):
    train = {"epochs": 2, "batch_size": 32, "encoder_lr": 0.01}
    return job(router=router.model_dump(), train=train, index=index)


def dev_pairs(problem):
    return np.stack([np.arange(len(problem.dev)), problem.dev], axis=1)


def build(problem, epochs=4, **index):
    made = make_router(FLAT, problem.documents, 0)
    leaf_NR = settle(made, problem.documents, spec_of(**index), 0)
    examples = problem.examples()
    targets = Targets.of(examples, examples.query_QM, problem.documents, 0)
    asked = Targets.judged(problem.queries[problem.dev], dev_pairs(problem))
    phase = RouterPhase(made, leaf_NR, targets, asked, 0)
    phase.epochs = epochs
    return Driver(phase)


@pytest.mark.parametrize("length", [1.0, 3.0])
def test_a_router_begins_as_kmeans(problem, length):
    """Leaves are those of k-means; longer vectors make no query surer."""
    made = make_router(FLAT, length * problem.documents, 0)
    wanted = spherical_kmeans(length * problem.documents, made.n_leaves, 0)
    assert sorted(made.cells.centroid_LM.tolist()) == sorted(wanted.tolist())
    found = made.log_probs(length * torch.from_numpy(problem.queries))
    products = torch.from_numpy(problem.queries) @ made.cells.centroid_LM.T
    torch.testing.assert_close(found, (SCALE * products).log_softmax(dim=1), atol=1e-4, rtol=1e-4)


def test_the_most_even_round_counts():
    """Sixty copies go back and forth between an empty leaf and one of forty: nothing is more even than no price."""
    angles = np.radians([0, 40, 180, 270, 18])
    leaves = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    made = LearnedIvfRouter(2, 4, 0)
    made.begin(torch.from_numpy(leaves[:4]))
    documents = np.repeat(leaves, [0, 40, 5, 5, 60], axis=0)
    settled = settle(made, documents, spec_of(leaves_per_document=1), 0)
    assert np.bincount(settled[:, 0]).tolist() == [60, 40, 5, 5]
    assert made.cells.price_L.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("leaves", "at_once"), [(1, 40), (2, 1 << 24)])
def test_dev_tells_what_is_visited_until_an_answer_is_reached(problem, leaves, at_once, monkeypatch):
    monkeypatch.setattr(phase_of_routers, "MEASURED", at_once)
    router_phase = build(problem, leaves_per_document=leaves)
    leaf_NR = place(opened(router_phase.router), Encoded(problem.documents), leaves)[0]
    held = [{row for row, own in enumerate(leaf_NR.tolist()) if leaf in own} for leaf in range(LEAVES)]
    held += [set()] * (router_phase.router.n_leaves - LEAVES)
    logits = router_phase.router.log_probs(torch.from_numpy(problem.queries[problem.dev]))
    order = (logits - router_phase.router.log_size_L).detach().argsort(dim=1, descending=True).tolist()
    shares = []
    for own, row in zip(order, problem.dev.tolist(), strict=True):
        last = next(place for place, leaf in enumerate(own) if row in held[leaf])
        visited = sum(len(held[leaf]) for leaf in own[: last + 1])
        shares.append(sum(map(len, held)) / visited)
    assert router_phase.start()["dev"] == pytest.approx(np.exp(np.mean(np.log(shares))), rel=1e-5)


@pytest.mark.parametrize("off", [0.3, 4])
def test_the_first_scale_makes_answers_most_probable(problem, off):
    router_phase = build(problem)
    made, examples = router_phase.router, problem.examples()
    targets = Targets.of(examples, examples.query_QM, problem.documents, 0)
    leaf_NR = place(opened(made), Encoded(problem.documents), 2)[0]
    before = made.W.detach().clone()
    with torch.no_grad():
        made.W.mul_(off)
    fit_scale(made, targets, leaf_NR)
    factor = float((made.W.detach() / before).median())
    torch.testing.assert_close(made.W.detach(), factor * before, rtol=1e-4, atol=1e-6)
    row_P, leaf_PR = torch.from_numpy(targets.pair_P2[:, 0]), torch.from_numpy(leaf_NR[targets.pair_P2[:, 1]])
    y_TM = torch.from_numpy(targets.vector_TM)

    def loss(scale):
        log_p = (scale * y_TM @ before.T + made.log_size_L).log_softmax(dim=1)
        return float(reach_loss(log_p, row_P, leaf_PR, torch.from_numpy(targets.weight_P)))

    assert factor == pytest.approx(min(1.02 ** np.arange(-150, 150), key=loss), rel=0.05)


def test_a_step_is_the_weighted_mean_over_its_answers(problem):
    router_phase = build(problem)
    rows = np.array([7, 3, 150, 0])
    log_p = router_phase.router.log_probs(router_phase.vector_TM).detach().numpy()
    targets = Targets.of(problem.examples(), problem.queries[problem.train], problem.documents, 0)
    leaf_NR = place(opened(router_phase.router), Encoded(problem.documents), 2)[0]
    total = weight = 0.0
    for (target, document), own in zip(targets.pair_P2, targets.weight_P, strict=True):
        if target in rows:
            total -= own * np.logaddexp.reduce(log_p[target, sorted(set(leaf_NR[document]))])
            weight += own
    assert router_phase.step(rows).item() == pytest.approx(total / weight, rel=1e-5)


def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(problem, tmp_path):
    ends_as_if_it_had_not_been_cut_off(partial(build, problem), 2, tmp_path / "router.safetensors")


# After a contrast


@pytest.mark.parametrize("judged", [True, False])
def test_the_teacher_reads_trained_vectors_and_documents_alone_teach_nothing(problem, judged, monkeypatch):
    """Where nothing is judged, queries visit leaves as in k-means IVF."""
    monkeypatch.setattr(phase_of_routers, "EPOCHS", 4)
    spec = spec_of()
    examples = problem.examples() if judged else document_pairs(Documents(problem.ids, problem.documents))
    stored = {**problem.stored(), "query": examples.query_QM}
    tower = HeadTower(ResidualHead(problem.documents.shape[1]), stored, torch.device("cpu"))
    first = Driver(Contrast(tower, examples, None, spec.train, 0, problem.exact()))
    if judged:
        run(first).restore_best()
    router_phase = Driver(build_router_phase(spec, spec.router, first.phase, examples, dev_pairs(problem)))
    assert np.array_equal(router_phase.dev.vector_TM, first.side("dev"))
    centroids = spherical_kmeans(first.documents(), LEAVES, 0)
    assert sorted(router_phase.router.cells.centroid_LM.tolist()) == sorted(centroids.tolist())
    assert router_phase.leaf_PR.shape[1] == 2
    run(router_phase)
    if judged:
        np.testing.assert_array_equal(router_phase.vector_TM[: len(problem.train)].numpy(), first.side("query"))
        assert router_phase.history[-1]["dev"] > router_phase.history[0]["dev"]
    else:
        assert [row["epoch"] for row in router_phase.history] == [0]
        nearest = torch.from_numpy(problem.queries) @ router_phase.router.cells.centroid_LM.T
        found = opened(router_phase.router).choose(Encoded(problem.queries), LEAVES)
        assert found.tolist() == nearest.argsort(dim=1, descending=True).tolist()
