"""Documents that ask for their neighbours: whom, of whom not, and who reads them."""

import numpy as np
import pytest
import torch

from rayhier.train.examples import Examples
from rayhier.train.retreever.grow import asking, reading, with_asked

N, PASSAGES = 60, 4
NONE = np.zeros(0, np.int64)
RESULTS = np.arange(N) // PASSAGES


@pytest.fixture(scope="module")
def examples():
    """Four passages a document that lie close together, and a judged query for every third row."""
    draws = np.random.default_rng(0)
    centre_NM = np.repeat(draws.normal(size=(N // PASSAGES, 8)), PASSAGES, axis=0)
    document_NM = (centre_NM + 0.01 * draws.normal(size=(N, 8))).astype(np.float32)
    document_NM /= np.linalg.norm(document_NM, axis=1, keepdims=True)
    pair_P2 = np.stack([np.arange(20), 3 * np.arange(20)], axis=1)
    return Examples(document_NM[pair_P2[:, 1]], document_NM, pair_P2, result_N=RESULTS)


def test_no_passage_asks_for_a_passage_of_its_own_document(examples):
    row_R, own_R = asking(examples, examples.document_NM, 2.0, 0, NONE)
    assert len(row_R) == 40
    assert (RESULTS[row_R] != RESULTS[own_R]).all()
    similar_NN = examples.document_NM @ examples.document_NM.T
    for row, own in zip(row_R, own_R, strict=True):
        others = similar_NN[row, RESULTS[row] != RESULTS]
        assert similar_NN[row, own] >= np.sort(others)[-3]
    assert [len(rows) for rows in asking(examples, examples.document_NM[:3], 1.0, 0, NONE)] == [0, 0], "too few"


def test_no_other_passage_of_a_document_is_a_negative_of_its_question(examples):
    row_R, own_R = asking(examples, examples.document_NM, 1.0, 0, NONE)
    known = with_asked(examples, row_R, own_R).known()
    for number, row in enumerate(row_R):
        siblings = np.flatnonzero(RESULTS[row] == RESULTS)
        assert known(np.full(PASSAGES, 20 + number), siblings).all()
        assert known(np.array([20 + number]), own_R[number : number + 1]).all()


@pytest.mark.parametrize("rows", [[0, 1], [0, 20, 2, 21], [22, 20]])
def test_questions_of_documents_are_read_as_documents(examples, rows):
    stored = {"query": examples.query_QM, "document": examples.document_NM}

    def read(side, own):
        assert len(own), "nothing to read"
        return (torch.from_numpy(stored[side][own]),)

    row_R = np.array([7, 9, 11])
    read_all = reading(read, 20, row_R)
    expected = [examples.query_QM[row] if row < 20 else examples.document_NM[row_R[row - 20]] for row in rows]
    np.testing.assert_array_equal(read_all("query", np.array(rows))[0].numpy(), np.stack(expected))
