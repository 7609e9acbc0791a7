"""The anchor of a tree's deepest level to the encoder's cosines, pair by pair."""

import itertools
import math

import numpy as np
import pytest
import torch

from rayhier.arrays import Floats, Values
from rayhier.dataset.documents import Documents
from rayhier.dataset.queries import Queries
from rayhier.model.encoder import ResidualHead
from rayhier.model.retreever import NodeTree, Splits, TreeLevels
from rayhier.spec.train import RetreeverTraining
from rayhier.spec.train.retreever import Comparison
from rayhier.train.examples import Examples
from rayhier.train.retreever.dev import SizesMeasure
from rayhier.train.retreever.grow import start_at_random
from rayhier.train.retreever.matching import MatchingPhase
from rayhier.train.tower import HeadTower, Side

N, M, D, BATCH = 40, 8, 3, 11
PAIRS = np.array([*((n, n) for n in range(20)), *((n, n + 20) for n in range(10))])
ROWS = np.array([*range(BATCH - 2), 20, 21])
"""Pairs of a batch; the last two are second answers of its first queries."""


@pytest.fixture(scope="module")
def examples() -> Examples:
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(N, M)).astype(np.float32)
    return Examples(documents[:20] + rng.normal(scale=0.5, size=(20, M)).astype(np.float32), documents, PAIRS)


@pytest.fixture(scope="module")
def tower(examples: Examples) -> HeadTower:
    head = ResidualHead(M)
    with torch.no_grad():
        head.weight.copy_(0.3 * torch.randn(M, M, generator=torch.Generator().manual_seed(1)))
    stored: dict[Side, Floats] = {
        "query": examples.query_QM,
        "document": examples.document_NM,
        "dev": examples.query_QM[:5],
    }
    return HeadTower(head, stored, torch.device("cpu"))


def made_tree(examples: Examples, similarity: Comparison) -> tuple[TreeLevels, torch.Tensor]:
    torch.manual_seed(0)
    splits = Splits(M, D)
    levels = TreeLevels(NodeTree(splits), similarity)
    removed_S = start_at_random(splits, examples.document_NM, 0)
    levels.begin(removed_S)
    return levels, removed_S


def matching(examples: Examples, tower: HeadTower, anchor: float) -> MatchingPhase:
    spec = RetreeverTraining(type="retreever")
    documents = Documents([f"d{n}" for n in range(N)], examples.document_NM)
    dev = Queries([f"q{n}" for n in range(5)], examples.query_QM[:5], {f"q{n}": {f"d{n}": 1} for n in range(5)})
    measure = SizesMeasure(dev, documents)
    return MatchingPhase(made_tree(examples, "cosine")[0], tower, examples, spec, 0, measure, anchor=anchor)


def loss(examples: Examples, tower: HeadTower, anchor: float) -> float:
    return matching(examples, tower, anchor).loss(ROWS, 0.0, 0.5).item()


def cosine(first: Values, second: Values) -> float:
    return float(np.dot(first, second) / (np.linalg.norm(first) * np.linalg.norm(second)))


def leaves_of(scores: list[float]) -> Values:
    leaves = []
    for leaf in range(2**D):
        probability, split = 1.0, 0
        for step in reversed(range(D)):
            right = (leaf >> step) & 1
            probability *= 1 / (1 + math.exp(scores[split] if right else -scores[split]))
            split = 2 * split + 1 + right
        leaves.append(probability)
    return np.array(leaves)


def deepest(levels: TreeLevels, removed_S: torch.Tensor, vector: torch.Tensor) -> Values:
    """What a text is compared by at the deepest level, leaf by leaf: 2^D p - 1, and as much of the removed means."""
    own, mean = (leaves_of(scores.tolist()) for scores in (levels.scores(vector[None])[0], removed_S))
    return 2**D * own - 1 + 2**D * mean - 1


def by_hand(examples: Examples, tower: HeadTower) -> float:
    """Mean over the N² pairs of a batch, summed over what is paired with what."""
    (levels, removed_S), (query_N, document_N) = made_tree(examples, "cosine"), PAIRS[ROWS].T
    texts = [tower.infer("query", query_N), tower.infer("document", document_N)]
    leaves = [[deepest(levels, removed_S, vector) for vector in own] for own in texts]
    vectors = [own.double().numpy() for own in texts]
    total = 0.0
    for one, other in ((0, 0), (0, 1), (1, 1)):
        for i, j in itertools.product(range(BATCH), repeat=2):
            moved = cosine(leaves[one][i], leaves[other][j]) - cosine(vectors[one][i], vectors[other][j])
            total += moved**2 / BATCH**2
    return total


@pytest.mark.parametrize("anchor", [1.0, 300.0])
def test_the_anchor_is_the_mean_squared_difference_of_cosines(
    anchor: float, examples: Examples, tower: HeadTower
) -> None:
    wanted = by_hand(examples, tower)
    assert wanted > 0.1
    added = loss(examples, tower, anchor) - loss(examples, tower, 0.0)
    assert added == pytest.approx(anchor * wanted, rel=1e-4)


def test_a_state_measures_the_same_twice(examples: Examples, tower: HeadTower) -> None:
    """Also before the first pass, where a tree drops scores in training."""
    phase = matching(examples, tower, 0.0)
    dropping = TreeLevels(NodeTree(Splits(M, D), dropout=0.5), "cosine")
    documents = Documents([f"d{n}" for n in range(N)], examples.document_NM)
    dev = Queries([f"q{n}" for n in range(5)], examples.query_QM[:5], {f"q{n}": {f"d{n}": 1} for n in range(5)})
    phase = MatchingPhase(dropping, tower, examples, phase.spec, 0, SizesMeasure(dev, documents))
    first = phase.measure()
    assert phase.measure() == first
    assert not dropping.training
    phase.run_pass(0)
    assert not dropping.training
