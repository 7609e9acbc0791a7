"""MaxSim is what a loop over tokens finds, and codes keep what their levels can hold."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from benchmarks.late.maxsim import Codec, maxsim, padded, principal, projected


def by_hand(query, document):
    """Mean over the query's tokens of the largest product with a token of the document."""
    if not len(query) or not len(document):
        return 0.0
    total = 0.0
    for query_M in query:
        total += max(sum(float(a) * float(b) for a, b in zip(query_M, token_M, strict=True)) for token_M in document)
    return total / len(query)


def unit(rows, generator):
    return F.normalize(torch.randn(rows, 5, generator=generator), dim=1)


@pytest.fixture
def texts():
    generator = torch.Generator().manual_seed(0)
    queries = [unit(rows, generator) for rows in (3, 0, 1, 6)]
    documents = [unit(rows, generator) for rows in (4, 1, 0, 7, 2)]
    documents[1] = -queries[0][:1]  # nothing but a negative product, which padding must not exceed
    return queries, documents


def scores(queries, documents):
    of_I = torch.repeat_interleave(torch.arange(len(queries)), torch.tensor([len(query) for query in queries]))
    vectors = padded(torch.cat(documents), np.array([len(document) for document in documents]))
    return maxsim(torch.cat(queries), of_I, len(queries), *vectors)


def test_maxsim_is_a_loops_with_padding_and_an_empty_query_and_document(texts):
    queries, documents = texts
    wanted = [[by_hand(query, document) for document in documents] for query in queries]
    np.testing.assert_allclose(scores(queries, documents).numpy(), wanted, atol=1e-6)
    with torch.no_grad():
        np.testing.assert_allclose(scores(queries, documents).numpy(), wanted, atol=1e-6)
    assert wanted[0][1] < 0


def test_gradient_is_that_of_the_largest_products(texts):
    queries, documents = texts
    tokens = torch.cat(documents).requires_grad_()
    count_N = np.array([len(document) for document in documents])
    of_I = torch.repeat_interleave(torch.arange(4), torch.tensor([3, 0, 1, 6]))
    maxsim(torch.cat(queries), of_I, 4, *padded(tokens, count_N))[3, 3].backward()

    wanted = torch.cat(documents).requires_grad_()
    ends = np.cumsum(count_N)
    (queries[3] @ wanted[ends[2] : ends[3]].T).amax(dim=1).mean().backward()
    torch.testing.assert_close(tokens.grad, wanted.grad)


@pytest.mark.parametrize("bits", [2, 4])
def test_codes_are_the_nearest_levels(bits):
    vector_XD = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    codec = Codec.fit(vector_XD, bits)
    byte_XB = codec.encode(vector_XD)
    assert byte_XB.shape == (400, bits)
    for number in range(8):
        byte, part = divmod(number, 8 // bits)
        level_L = np.unique(codec.level_BVP[byte, :, part])
        assert len(level_L) == 1 << bits
        nearest_X = level_L[np.abs(vector_XD[:, number, None] - level_L).argmin(axis=1)]
        np.testing.assert_array_equal(codec.level_BVP[byte, byte_XB[:, byte], part], nearest_X)
    decoded_XD = codec.decode(byte_XB)
    np.testing.assert_allclose(np.linalg.norm(decoded_XD, axis=1), 1, atol=1e-5)
    cosine_X = (decoded_XD * vector_XD).sum(axis=1) / np.linalg.norm(vector_XD, axis=1)
    assert cosine_X.mean() > {2: 0.9, 4: 0.99}[bits]


def test_principal_directions_keep_the_most_length():
    generator = np.random.default_rng(0)
    vector_XM = (generator.normal(size=(500, 6)) * [1, 5, 1, 3, 1, 1]).astype(np.float32)
    projection_MD = principal(vector_XM, 2)
    assert np.abs(projection_MD[[1, 3]].numpy()).max(axis=1).min() > 0.95
    norms = projected(torch.from_numpy(vector_XM), projection_MD).norm(dim=1)
    torch.testing.assert_close(norms, torch.ones(500))
