"""ReTreever's tree against products by brute force, scipy, finite differences and a tree of one split by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from rayhier.dataset.documents import Documents
from rayhier.dataset.queries import Queries
from rayhier.model.encoder import ResidualHead
from rayhier.model.retreever import AttentionSplits, LearnedPropagation, NodeTree, Splits, TreeLevels, Trunk, products
from rayhier.spec.train import RetreeverTraining
from rayhier.train.examples import Examples
from rayhier.train.retreever.dev import SizesMeasure
from rayhier.train.retreever.matching import SCALES, MatchingPhase, level_weights
from rayhier.train.tower import HeadTower

N, M, D = 7, 6, 4


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(scores):
    """Probability of every node of every level of a text, node by node down its path."""
    levels = []
    for level in range(1, D + 1):
        own = []
        for node in range(2**level):
            probability, split = 1.0, 0
            for step in reversed(range(level)):
                right = (node >> step) & 1
                left = 1 / (1 + math.exp(-scores[split]))
                probability *= 1 - left if right else left
                split = 2 * split + 1 + right
            own.append(probability)
        levels.append(own)
    return levels


def tree(propagation=None, trunk=None, dropout=0.0):
    torch.manual_seed(0)
    return NodeTree(Splits(M, D, trunk), propagation, dropout).double()


def test_a_learned_propagation_by_hand():
    scores, propagation = drawn(N, 2**D - 1), LearnedPropagation(D).double().eval()
    for own, wanted in zip(propagation(scores), products(scores), strict=True):
        torch.testing.assert_close(own, wanted)  # as it starts
    with torch.no_grad():
        propagation.output_LH.normal_(generator=torch.Generator().manual_seed(3))
    *_, above, below = (level.exp() for level in propagation(scores))
    torch.testing.assert_close(above, below.unflatten(1, (-1, 2)).sum(dim=2))
    for row in range(N):
        logits = []
        for leaf in range(2**D):
            path, split = [], 0
            for step in reversed(range(D)):
                right = (leaf >> step) & 1
                left = torch.sigmoid(scores[row, split])
                path.append(1 - left if right else left)
                split = 2 * split + 1 + right
            own = torch.stack(path)
            hidden = torch.relu(own @ propagation.weight_LDH[leaf] + propagation.bias_LH[leaf])
            logits.append(own.log().sum() + hidden @ propagation.output_LH[leaf])
        torch.testing.assert_close(below[row], torch.softmax(torch.stack(logits), dim=0))


def similarity_by_hand(first, second, similarity):
    if similarity == "tv":
        return -0.5 * sum(abs(a - b) for a, b in zip(first, second, strict=True))
    one, other = (np.array(level) - 1 / len(level) for level in (first, second))
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def matching(levels, pair_P2, documents=3, head=0.0, **settings):
    """The training of a tree's levels by three queries or more; its encoder is a head with random weights."""
    query_QM, document_NM = (drawn(documents, M, seed=seed).float().numpy() for seed in (1, 2))
    stored = {"query": query_QM, "document": document_NM, "dev": query_QM[:1]}
    tower = HeadTower(ResidualHead(M), stored, torch.device("cpu"))
    with torch.no_grad():
        tower.module.weight.copy_(head * drawn(M, M, seed=8))
    measure = SizesMeasure(
        Queries(["q"], query_QM[:1], {"q": {"d0": 1}}), Documents([f"d{n}" for n in range(documents)], document_NM)
    )
    spec = RetreeverTraining(type="retreever", similarity=levels.similarity, schedule="matryoshka")
    examples = Examples(query_QM, document_NM, np.array(pair_P2))
    return MatchingPhase(levels, tower, examples, spec, 0, measure, **settings)


@pytest.mark.parametrize("similarity", ["tv", "cosine"])
def test_the_loss_by_hand(similarity):
    """Document 2 answers query 0, too: that query does not lose by it, nor does the document by that query.

    Query 2 and document 0 are wrong for each other.
    """
    batch, levels = np.array([0, 1, 2]), TreeLevels(NodeTree(Splits(M, D)), similarity)
    with torch.no_grad():
        levels.tree.splits.planes.weight.normal_(generator=torch.Generator().manual_seed(6))
    levels.begin(torch.zeros(2**D - 1))
    assert (levels.offset_L is None) == (similarity == "tv")
    phase = matching(levels, [[0, 0], [1, 1], [2, 2], [0, 2]])
    queries, documents = (
        [by_hand(levels.scores(vector[None])[0].tolist()) for vector in phase.tower.infer(side, batch)]
        for side in ("query", "document")
    )
    total = 0.0
    for level in range(D):
        alike = [[similarity_by_hand(query[level], own[level], similarity) for own in documents] for query in queries]
        told = np.exp(SCALES[similarity][0] * np.array(alike))
        told[0, 2] = 0
        for n in batch:
            total -= math.log(told[n, n] / told[n].sum()) + math.log(told[n, n] / told[:, n].sum())
    assert phase.loss(batch, 0.0, 0.0).item() == pytest.approx(total / (2 * 3 * D), rel=1e-3)


@pytest.mark.parametrize("anchor", [1.0, 300.0])
def test_the_anchor_is_the_mean_squared_difference_of_cosines(anchor):
    """Over the N² pairs of a batch, summed over what is paired with what, of leaves and of the encoder's vectors."""
    levels, mean_S = TreeLevels(NodeTree(Splits(M, D)), "cosine"), drawn(2**D - 1, seed=7).float()
    levels.begin(mean_S)
    pair_P2, rows = [*((n, n) for n in range(8)), (0, 9), (1, 8)], np.array([0, 1, 2, 3, 4, 8, 9])
    phase, plain = (matching(levels, pair_P2, 10, head=0.3, anchor=weight) for weight in (anchor, 0.0))
    texts = [phase.tower.infer(side, np.array(pair_P2)[rows, n]) for n, side in enumerate(("query", "document"))]
    mean_L = np.array(by_hand(mean_S.tolist())[-1])
    leaves = [
        [2**D * (np.array(by_hand(scores)[-1]) + mean_L) - 2 for scores in levels.scores(vectors).tolist()]
        for vectors in texts
    ]
    wanted = 0.0
    for one, other in ((0, 0), (0, 1), (1, 1)):
        moved = cdist(leaves[one], leaves[other], "cosine") - cdist(texts[one], texts[other], "cosine")
        wanted += np.square(moved).mean()
    assert wanted > 0.1
    added = phase.loss(rows, 0.0, 0.5).item() - plain.loss(rows, 0.0, 0.5).item()
    assert added == pytest.approx(anchor * wanted, rel=1e-3)


def test_splits_that_tell_no_texts_apart_are_refused():
    model = tree()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.zero_()
    with pytest.raises(ValueError, match="15 of 15 splits give all texts one score"):
        model.splits.scale(drawn(N, M))


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("trunk", [False, True])
def test_every_tensor_moves(learned, trunk):
    """In one step; a propagation whose output starts at zero needs a second for what is below its output."""
    model = tree(LearnedPropagation(D) if learned else None, Trunk(M) if trunk else None, dropout=0.1)
    model.splits.scale(drawn(50, M, seed=9))
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    for step in range(1 + learned):
        optimizer.zero_grad()
        sum((level.exp() * drawn(*level.shape)).sum() for level in model(drawn(8, M, seed=step))).backward()
        optimizer.step()
    assert all(not torch.equal(tensor, before[name]) for name, tensor in model.named_parameters())


def test_stochastic_levels_are_drawn_by_their_square_and_schedules_deepen():
    rng = np.random.default_rng(0)
    found = np.mean([level_weights("stochastic", 4, 0.0, float(rng.random())) for _ in range(20_000)], axis=0)
    np.testing.assert_allclose(found, np.array([1, 4, 9, 16]) / 30, atol=0.01)
    for schedule, levels in (("constant", [4, 4, 4]), ("linear", [1, 3, 4]), ("exponential", [1, 2, 4])):
        found = [level_weights(schedule, 4, done, 0.0) for done in (0.0, 0.5, 0.99)]
        assert [(weights.index(1.0) + 1, sum(weights)) for weights in found] == [(level, 1) for level in levels]
    assert level_weights("matryoshka", 3, 0.0, 0.0) == [1, 1, 1]


def by_attention(splits, tokens, mask):
    """Score of every split for a text, head by head."""
    found = []
    for node, embedding in enumerate(splits.embedding_SM):
        query, read = splits.query(embedding), []
        for head in range(8):
            own = slice(64 * head, 64 * head + 64)
            told = [(query[own] @ splits.key(token)[own]) / 8 for token in tokens[mask.bool()]]
            weights = torch.softmax(torch.stack(told), dim=0)
            values = torch.stack([splits.value(token)[own] for token in tokens[mask.bool()]])
            read.append(weights @ values)
        row = 0 if splits.aggregation == "shared" else node
        found.append(splits.planes.weight[row] @ torch.cat(read) + splits.planes.bias[row])
    if splits.aggregation != "ancestors":
        return torch.stack(found)
    mended = []
    for node, score in enumerate(found):
        path, one = [], node
        while one >= 0:
            path.append(one)
            one = (one + 1) // 2 - 1
        above = torch.stack([found[one] for one in path] + [score * 0] * (D - len(path)))
        hidden = torch.relu(above @ splits.weight_SDH[node] + splits.bias_SH[node])
        mended.append(score + hidden @ splits.output_SH[node])
    return torch.stack(mended)


@pytest.mark.parametrize("aggregation", ["shared", "linear", "ancestors"])
def test_attention_by_hand_and_padding_that_changes_nothing(aggregation):
    torch.manual_seed(0)
    splits = AttentionSplits(M, D, aggregation).double()
    tokens, mask = drawn(3, 5, M), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    # Attention reads single precision, as an encoder's last hidden states are.
    splits = splits.float()
    tokens = tokens.float()
    found = splits(tokens, mask)
    for row in range(3):
        torch.testing.assert_close(found[row], by_attention(splits, tokens[row], mask[row]), atol=1e-5, rtol=1e-4)
    changed = tokens.masked_fill(~mask.bool()[:, :, None], 7.0)
    wider = torch.cat([changed, torch.full((3, 2, M), 9.0)], dim=1)
    torch.testing.assert_close(splits(wider, torch.cat([mask, mask[:, :2] * 0], dim=1)), found, atol=1e-6, rtol=1e-6)
