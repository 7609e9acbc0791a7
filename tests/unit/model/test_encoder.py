"""The residual head; the encoder is in tests/oracles/test_sentence_transformers.py."""

import pytest
import torch

from rayhier.model.encoder import ResidualHead


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_a_new_head_is_the_identity_on_unit_vectors():
    vectors = torch.nn.functional.normalize(torch.randn(5, 4), dim=1)
    torch.testing.assert_close(ResidualHead(4)(vectors), vectors)


def test_rows_of_the_weight_make_coordinates():
    head = ResidualHead(2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.0, 3.0], [0.0, 0.0]]))
    # x + W x of (0, 1) is (3, 1).
    torch.testing.assert_close(head(torch.tensor([[0.0, 1.0]])), torch.tensor([[3.0, 1.0]]) / 10**0.5)


def test_the_length_of_its_input_does_not_matter():
    head = ResidualHead(4)
    torch.nn.init.normal_(head.weight)
    vectors = torch.randn(5, 4)
    torch.testing.assert_close(head(7 * vectors), head(vectors))
