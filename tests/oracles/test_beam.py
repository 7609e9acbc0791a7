"""The router against brute force: every path of the tree by the paper's formula, in numpy."""

from itertools import product

import numpy as np
import pytest
import torch

from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.router import opened

M, TEXTS = 6, 20
SHAPES = [(5, 1, "none"), (3, 2, "none"), (3, 2, "relu"), (2, 3, "relu")]
ALL = pytest.mark.parametrize(("branching", "height", "residual"), SHAPES)


class Reference:
    """EHI 3.3 on one text: weights as numpy, no tensors, no batches."""

    def __init__(self, router):
        self.B, self.H = router.branching, router.height
        self.W = [linear.weight.detach().numpy() for linear in router.W]
        self.U = [linear.weight.detach().numpy() for linear in router.U]

    def children(self, x, path):
        """p̂ of the children of the node at `path`, digits from the root."""
        onehots = [np.eye(self.B)[digit] for digit in reversed(path)]
        x = np.concatenate([*onehots, x])
        k = x + np.maximum(self.U[len(path)] @ x, 0) if self.U else x
        z = np.exp(self.W[len(path)] @ k)
        return z / z.sum()

    def probability(self, x, path):
        return np.prod([self.children(x, path[:h])[path[h]] for h in range(len(path))])

    def leaves(self, x):
        found = np.empty(self.B**self.H)
        for path in product(range(self.B), repeat=self.H):
            number = sum(digit * self.B ** (self.H - 1 - h) for h, digit in enumerate(path))
            found[number] = self.probability(x, path)
        return found

    def beam(self, x, beam):
        kept = [()]
        for _ in range(self.H):
            candidates = [(*path, child) for path in kept for child in range(self.B)]
            kept = sorted(candidates, key=lambda path: -self.probability(x, path))[:beam]
        return [int("".join(str(digit) for digit in path), self.B) for path in kept]

    def path_embedding(self, x):
        path, taken, parts = (), 1.0, []
        for _ in range(self.H):
            parts.append(taken * self.children(x, path))
            path, taken = (*path, int(parts[-1].argmax())), parts[-1].max()
        return np.concatenate(parts)


def build(branching, height, residual):
    torch.manual_seed(branching)
    router = EhiRouter(M, branching, height, residual).double()
    for parameter in router.parameters():
        torch.nn.init.normal_(parameter)
    return router.requires_grad_(requires_grad=False)


@pytest.fixture(scope="module")
def texts():
    vectors = np.random.default_rng(0).normal(size=(TEXTS, M))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def route(router, texts, beam):
    return opened(router).route(Encoded(texts), beam)


@ALL
@pytest.mark.parametrize("beam", [1, 3, 1000])
def test_every_beam_keeps_what_a_beam_search_keeps(branching, height, residual, beam, texts):
    router = build(branching, height, residual)
    leaves, logp = route(router, texts, beam)
    assert leaves.shape == logp.shape == (TEXTS, min(beam, router.n_leaves))
    reference = Reference(router)
    assert leaves.tolist() == [reference.beam(x, beam) for x in texts]
    wanted = np.take_along_axis(np.stack([reference.leaves(x) for x in texts]), leaves, axis=1)
    np.testing.assert_allclose(np.exp(logp), wanted, rtol=1e-4)
    assert (np.diff(logp, axis=1) <= 0).all()


@ALL
def test_path_embedding(branching, height, residual, texts):
    router = build(branching, height, residual)
    wanted = np.stack([Reference(router).path_embedding(x) for x in texts])
    assert wanted.shape == (TEXTS, branching * height)
    np.testing.assert_allclose(router.path_embedding(torch.from_numpy(texts)).numpy(), wanted, rtol=1e-9)


def test_all_in_batches_is_route(texts, monkeypatch):
    router = build(3, 2, "relu")
    monkeypatch.setattr("rayhier.model.opened_router.FLOATS_AT_ONCE", 7 * router.n_leaves)
    parts = [route(router, texts[row : row + 1], 4) for row in range(TEXTS)]
    for found, wanted in zip(route(router, texts, 4), zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(found, np.concatenate(wanted), rtol=1e-5)
