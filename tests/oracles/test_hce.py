"""HCE's loss by hand on a small tree, in plain loops, and where it equals that of others."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from rayhier.dataset.spans import Spans
from rayhier.model.encoder import ResidualHead
from rayhier.spec.train import ContrastTraining, HceTraining
from rayhier.train.contrast import Contrast
from rayhier.train.dev_measures import DevMeasured
from rayhier.train.examples import Examples
from rayhier.train.hce import Hce
from rayhier.train.pseudo import StoredPairs
from rayhier.train.tower import HeadTower

from ..draws import unit

Q, N, M, ROWS = 20, 50, 12, 16


def parts(documents=N):
    """Query n is answered by document n alone; the head is no identity."""
    rng = np.random.default_rng(0)
    queries, documents = unit(rng, Q, M), unit(rng, documents, M)
    head = ResidualHead(M)
    torch.nn.init.normal_(head.weight, std=0.3, generator=torch.Generator().manual_seed(0))
    tower = HeadTower(head, {"query": queries, "document": documents, "dev": queries[:1]}, torch.device("cpu"))
    return tower, Examples(queries, documents, np.stack([np.arange(Q)] * 2, axis=1))


def silent(*_):
    return DevMeasured({"R@100": 0.0}, np.zeros(1))


def begun(tower, examples, spec, pseudo=None):
    """HCE's training, the rows of its first step, and what that step draws from."""
    hce = Hce(tower, examples, pseudo, spec, 0, silent)
    _, rows, generator = next(hce.steps(0))
    return hce, rows, generator


@pytest.mark.parametrize(("judged", "pseudo"), [(True, False), (False, True), (True, True)], ids=["S", "U", "J"])
def test_without_hierarchy_and_siblings_it_is_the_contrast(judged, pseudo):
    shared = {"epochs": 6, "batch_size": 8, "hard_negatives": {"per_query": 2}, "anchor": 2.0}
    (tower, examples), (other, _) = parts(), parts()
    examples = examples if judged else replace(examples, pair_P2=examples.pair_P2[:0])
    for one in (tower, other):
        one.stored["pseudo"] = unit(np.random.default_rng(1), N, M)
    spans = Spans(tower.stored["pseudo"], np.arange(N) // 2, pa.chunked_array([[""] * N]))
    drawn = StoredPairs(spans) if pseudo else None
    contrast = Contrast(tower, examples, drawn, ContrastTraining(type="contrast", **shared), 0, silent)
    bare = HceTraining(type="hce", **shared, hierarchy=0, siblings=0, tree={"branching": 4, "levels": 1})
    hce, *_ = begun(other, examples, bare, drawn)
    for epoch in range(6):
        assert hce.run_pass(epoch)["loss_total"] == pytest.approx(contrast.run_pass(epoch)["loss_total"], rel=1e-6)
    torch.testing.assert_close(other.module.weight, tower.module.weight)
    assert not torch.equal(tower.module.weight, parts()[0].module.weight)


TAU, ALPHA, MOST = 0.2, 0.5, 3
SINGLE = {"form": "single", "hierarchy": 0.3}
PAPER = {"form": "paper", "hard_negatives": {"source": "none"}}
CASES = {
    "single": ({**SINGLE, "tree": {"branching": 3, "levels": 2}}, 0.3, False, 2, [2]),
    "paper": ({**PAPER, "tree": {"branching": 3, "levels": 1}}, 1.0, True, 1, [1, 2, 3]),
}
"""Settings, then what they must mean: weight of the hierarchy, whether documents pick queries, levels told apart by
centroids, and the level whose nodes siblings lie below, for each term of the contrast; 0 is the root."""


class Plain:
    """A step's loss in float64, one score after the other, from weights and tree as they are now.

    Queries have one or two answers, at other rows than their own. Rows below 30 are passages, three of a document.
    """

    def __init__(self):
        rng = np.random.default_rng(3)
        self.base = {"query": unit(rng, Q, M), "document": unit(rng, 60, M), "pseudo": unit(rng, 120, M)}
        answers = [(query, (7 * query + 11) % 60) for query in range(Q)]
        self.pair_P2 = np.array(answers + [(query, (7 * query + 12) % 60) for query in range(0, Q, 3)])
        self.result_N = np.where(np.arange(60) < 30, np.arange(60) // 3, np.arange(60))
        self.pseudo_P = np.repeat(np.arange(60), 2)

    def hce(self, spec, judged, pseudo):
        """HCE's training on this problem, at its first step; neither head nor centroids are as they began."""
        head = ResidualHead(M)
        torch.nn.init.normal_(head.weight, std=0.3, generator=torch.Generator().manual_seed(0))
        tower = HeadTower(head, {**self.base, "dev": self.base["query"][:1]}, torch.device("cpu"))
        queries, documents = self.base["query"], self.base["document"]
        result_N, none_P2 = self.result_N, np.empty((0, 2), dtype=np.int64)
        examples = Examples(queries, documents, self.pair_P2, result_N=result_N)
        if not judged:
            examples = Examples(documents, documents, none_P2, same=True, result_N=result_N)
        spans = Spans(self.base["pseudo"], self.pseudo_P, pa.chunked_array([[""] * 120]))
        begin = begun(tower, examples, spec, StoredPairs(spans) if pseudo else None)
        with torch.no_grad():
            for centroid in begin[0].hierarchy.centroids:
                centroid.add_(torch.randn(centroid.shape, generator=torch.Generator().manual_seed(1)), alpha=0.3)
        return begin

    def read(self, hce):
        """Read weights, and of every level the parents of its nodes and the node above each document."""
        self.weight = hce.tower.module.weight.detach().double().requires_grad_()
        self.centroids = [c.detach().double().requires_grad_() for c in hce.hierarchy.centroids]
        kept = hce.learner.kept
        self.parents = [kept[f"parent.{level}"].tolist() for level in range(3)]
        paths = []
        for leaf in kept["leaf"].tolist():
            path = [leaf]
            for parent in (self.parents[2], self.parents[1]):
                path.insert(0, parent[path[0]])
            paths.append([0, *path])
        self.node_NL = np.array(paths)

    def vector(self, side, row):
        x = torch.from_numpy(self.base[side][row]).double()
        y = x + self.weight @ x
        return y / y.norm()

    def answers(self, side, query, row):
        """Whether a document answers a query, or a pseudo-query of the document `query`."""
        if side == "pseudo":
            return self.result_N[query] == self.result_N[row]
        return [query, row] in self.pair_P2.tolist()

    def check_siblings(self, side, pairs, level, siblings):
        """Other documents below the same node that answer nothing, as many as there are, up to three."""
        for (query, row), own in zip(pairs, siblings.tolist(), strict=True):
            below = np.flatnonzero(self.node_NL[:, level] == self.node_NL[row, level]).tolist()
            allowed = {one for one in below if one != row and not self.answers(side, query, one)}
            found = [one for one in own if one >= 0]
            assert set(found) <= allowed
            assert len(found) == len(set(found)) == min(MOST, len(allowed))

    def contrast(self, side, pairs, asked, mined, siblings, both):
        queries = [self.vector(side, row) for row in asked]
        rows = [row for _, row in pairs] + mined
        documents = [self.vector("document", row) for row in rows]
        total = 0.0
        for i, (query, row) in enumerate(pairs):
            told = [d for j, d in enumerate(documents) if j == i or not self.answers(side, query, rows[j])]
            told += [self.vector("document", one) for one in siblings[i].tolist() if one >= 0]
            total = total + picked(queries[i], documents[i], told)
            if both:
                asking = [q for j, q in enumerate(queries) if j == i or not self.answers(side, pairs[j][0], row)]
                total = total + picked(documents[i], queries[i], asking)
        return total

    def told_apart(self, side, pairs, asked, levels):
        """Sum over pairs and levels of the cross-entropy among the siblings of the node above the document."""
        total = 0.0
        for level in range(1, levels + 1):
            nodes = [c / c.norm() for c in self.centroids[level - 1]]
            parent = self.parents[level - 1]
            for (_, row), one in zip(pairs, asked, strict=True):
                own = self.node_NL[row, level]
                among = [node for node in set(self.node_NL[:, level].tolist()) if parent[node] == parent[own]]
                total = total + picked(self.vector(side, one), nodes[own], [nodes[node] for node in among])
        return total


def picked(query, own, among):
    """-log of the share of e^(q·d/τ) that falls to one of some vectors."""
    shares = [torch.exp(query @ one / TAU) for one in among]
    return -torch.log(torch.exp(query @ own / TAU) / sum(shares))


@pytest.mark.parametrize(("judged", "pseudo"), [(True, False), (False, True), (True, True)], ids=["S", "U", "J"])
@pytest.mark.parametrize("case", CASES)
def test_a_whole_step_in_plain_loops(case, judged, pseudo):
    """The loss and its gradient; of the code only what it has drawn is taken, and that is checked."""
    given, hierarchy, both, levels, terms = CASES[case]
    shared = {"type": "hce", "batch_size": ROWS, "temperature": TAU, "siblings": MOST, "anchor": 0}
    plain, spec = Plain(), HceTraining.model_validate({**shared, **given})
    hce, rows, generator = plain.hce(spec, judged, pseudo)
    plain.read(hce)
    assert len(plain.centroids) == levels
    parts, wanted = hce.parts(rows, generator), 0.0
    sides = [side for side, there in (("query", judged), ("pseudo", pseudo)) if there]
    for side, part in zip(sides, parts, strict=True):
        mined = part.pairs.column_C[len(rows) :].tolist()
        if side == "query":
            pairs, weight = plain.pair_P2[rows].tolist(), 1.0
            asked, count = [query for query, _ in pairs], 2 if spec.form == "single" else 0
        else:
            drawn, asked = part.pairs.document_N.tolist(), part.pairs.asked_N.tolist()
            assert len(set(drawn)) == len(rows)
            assert drawn == plain.pseudo_P[asked].tolist()
            pairs, weight, count = [(row, row) for row in drawn], ALPHA if judged else 1.0, 0
        assert len(mined) == count * len(rows)
        own = 0.0
        for level, siblings in zip(terms, part.sibling_TNS, strict=True):
            plain.check_siblings(side, pairs, level, siblings)
            own = own + plain.contrast(side, pairs, asked, mined, siblings, both)
        own = own + hierarchy * plain.told_apart(side, pairs, asked, levels)
        wanted = wanted + weight * own / len(rows)
    assert hce.take(parts).item() == pytest.approx(wanted.item(), rel=1e-5)
    wanted.backward()
    trained = [hce.tower.module.weight, *hce.hierarchy.centroids]
    for ours, theirs in zip(trained, [plain.weight, *plain.centroids], strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_the_contrast_is_their_ranking_loss(temperature, hard):
    rng = np.random.default_rng(1)
    rows, negatives = rng.permutation(Q)[:ROWS], rng.integers(Q, N, ROWS)
    ours, theirs = (
        Contrast(*parts(), None, ContrastTraining(type="contrast", temperature=temperature), 0, silent)
        for _ in range(2)
    )
    loss = ours.take([ours.batch(rows, negatives if hard else negatives[:0])])

    asks = [("query", rows), ("document", rows), *([("document", negatives)] if hard else [])]
    reference = MultipleNegativesRankingLoss(torch.nn.Identity(), scale=1 / temperature)
    wanted = reference.compute_loss_from_embeddings([theirs.tower.encode(*ask) for ask in asks], None)
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert theirs.learner.parameters[0].grad.abs().max() > 1e-3
    torch.testing.assert_close(ours.learner.parameters[0].grad, theirs.learner.parameters[0].grad, atol=1e-5, rtol=1e-4)
