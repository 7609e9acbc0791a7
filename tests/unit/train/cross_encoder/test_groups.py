"""TrainingGroups: an answer and wrong documents from where the spec says, and the loss over them."""

import numpy as np
import pytest
import torch

from rayhier.search.words.bm25 import Bm25Index
from rayhier.train.cross_encoder import groups as module
from rayhier.train.cross_encoder.groups import TrainingGroups
from rayhier.train.cross_encoder.phase import group_loss
from rayhier.train.examples import Examples


@pytest.fixture
def world(unit):
    """Thirty documents, ten queries; query n is answered by document n, query 0 by document 20 too."""
    rng = np.random.default_rng(0)
    texts = [f"word{n} shared{n % 5} all" for n in range(30)]
    queries = [f"word{n} shared{n % 5}" for n in range(10)]
    pair_P2 = np.array([[n, n] for n in range(10)] + [[0, 20]])
    document_NM = unit(rng, 30, 6)
    return Examples(unit(rng, 10, 6), document_NM, pair_P2, queries), texts


def rows(group):
    return [int(text.split()[0].removeprefix("word")) for text in group.documents]


def test_wrong_documents_come_from_where_they_should(world, monkeypatch):
    examples, texts = world
    monkeypatch.setattr(module, "TOP", 4)
    groups = TrainingGroups(examples, texts)
    made = groups.draw(np.arange(11), np.random.default_rng(0))
    words = Bm25Index(texts)
    for (query, answer), group in zip(examples.pair_P2.tolist(), made, strict=True):
        own = rows(group)
        assert own[0] == answer
        assert len(own) == len(set(own)) == 8
        answers = {0, 20} if query == 0 else {query}
        assert not answers & set(own[1:])
        near = [n for n in np.argsort(-(examples.document_NM @ examples.query_QM[query])) if n not in answers][:4]
        assert set(own[1:5]) == set(near)
        score_N = words.scores(examples.query_texts[query])
        base_D = examples.document_NM[own] @ examples.query_QM[query]
        np.testing.assert_allclose(group.teacher_D, 20 * (base_D + 0.3 * score_N[own] / score_N.max()), rtol=1e-5)
    again, other = (groups.draw(np.arange(11), np.random.default_rng(seed)) for seed in (0, 1))
    assert list(map(rows, again)) == list(map(rows, made)) != list(map(rows, other))


def test_the_loss_is_cross_entropy_and_divergence():
    score_D, teacher_D = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1.0, 3.0, 0.0])
    p, log_q = teacher_D.softmax(0), score_D.log_softmax(0)
    divergence = (p * (p.log() - log_q)).sum()
    expected = torch.nn.functional.cross_entropy(score_D[None], torch.tensor([0])) + 0.5 * divergence
    torch.testing.assert_close(group_loss(score_D, teacher_D, 0.5), expected)
    torch.testing.assert_close(group_loss(teacher_D, teacher_D, 0.5), -teacher_D.log_softmax(0)[0])


def test_no_known_answer_is_drawn_where_all_others_are(unit, monkeypatch):
    """Query 0 is answered by documents 1 and 4: a group of either one holds all but the other, which are few."""
    rng = np.random.default_rng(0)
    document_NM = unit(rng, 12, 4)
    examples = Examples(unit(rng, 1, 4), document_NM, np.array([[0, 1], [0, 4]]), ["word1"])
    texts = [f"word{n}" for n in range(12)]
    monkeypatch.setattr(module, "WRONG", 30)
    groups = TrainingGroups(examples, texts)
    for answer, group in zip((1, 4), groups.draw(np.array([0, 1]), rng), strict=True):
        assert rows(group)[0] == answer
        assert sorted(rows(group)) == sorted({*range(12)} - ({1, 4} - {answer}))
