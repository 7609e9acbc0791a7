"""What a cross-encoder teaches the encoder on folds: its documents, and the divergence from its scores."""

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.teacher import Lesson, divergence, listed


def test_documents_are_listed_once_after_the_answer():
    base_PD, words_PD = np.array([[1, 2], [7, 3]]), np.array([[2, 4], [3, 3]])
    assert listed(np.array([9, 7]), base_PD, words_PD).tolist() == [[9, 1, 2, -1, 4], [7, -1, 3, -1, -1]]


def test_a_document_that_repeats_a_missing_one_is_missing():
    assert listed(np.array([0]), np.array([[-1, -1]])).tolist() == [[0, -1, -1]]


def test_divergence_is_that_of_distributions_over_what_is_listed():
    teacher_ND = torch.tensor([[1.0, 0.0, -torch.inf], [0.5, 2.0, 1.0]])
    score_ND = torch.tensor([[0.2, 0.4, 9.0], [0.0, 0.0, 0.0]], requires_grad=True)
    first = F.kl_div(score_ND[0, :2].log_softmax(0), teacher_ND[0, :2].log_softmax(0), log_target=True, reduction="sum")
    second = F.kl_div(score_ND[1].log_softmax(0), teacher_ND[1].log_softmax(0), log_target=True, reduction="sum")
    loss = divergence(score_ND, teacher_ND)
    torch.testing.assert_close(loss, (first + second) / 2)
    loss.backward()
    assert score_ND.grad.isfinite().all()
    assert score_ND.grad[0, 2] == 0


def test_a_lesson_pulls_where_the_cross_encoder_scores_higher():
    lesson = Lesson(np.array([4]), np.array([[2, 5, -1]]), np.array([[0.0, 3.0, -np.inf]], np.float32), 0.5, 2.0)
    (side, rows), (other, documents) = lesson.asks
    assert (side, rows.tolist(), other, documents.tolist()) == ("query", [4], "document", [2, 5, 0])
    query_NM = torch.tensor([[1.0, 0.0]])
    document_XM = torch.tensor([[0.6, 0.8], [0.6, -0.8], [1.0, 0.0]], requires_grad=True)
    loss = lesson.loss([query_NM, document_XM])
    torch.testing.assert_close(loss, 2 * divergence(torch.tensor([[1.2, 1.2]]), torch.tensor([[0.0, 3.0]])))
    loss.backward()
    assert document_XM.grad[1, 0] < 0 < document_XM.grad[0, 0]
    assert document_XM.grad[2].abs().sum() == 0
