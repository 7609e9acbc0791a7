"""Controls of a tree that attends to tokens: an adapter and softmaxes with the same attention."""

import pytest
import torch

from benchmarks.retreever.attending import AttendingAdapter, AttendingSoftmax, Grouped
from rayhier.model.retreever import DEEPEST, AttentionSplits

DIMENSION, DEPTH = 6, 3


def tokens(lengths):
    torch.manual_seed(1)
    mask_NT = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return torch.randn(len(lengths), max(lengths), DIMENSION), mask_NT


@pytest.mark.parametrize("lengths", [[3], [1, 5, 2], [4, 1, 3, 2, 9, 9, 1, 6, 7, 2, 5]])
@pytest.mark.parametrize("aggregation", ["ancestors", "linear"])
def test_groups_of_like_length_have_the_same_scores(lengths, aggregation):
    torch.manual_seed(0)
    grouped = Grouped(DIMENSION, DEPTH, aggregation)
    plain = AttentionSplits(DIMENSION, DEPTH, aggregation)
    plain.load_state_dict(grouped.state_dict())
    torch.testing.assert_close(grouped(*tokens(lengths)), plain(*tokens(lengths)))


@pytest.mark.parametrize("kind", [AttendingAdapter, AttendingSoftmax])
def test_sizes_are_those_of_a_tree_but_for_the_last_output(kind):
    made = kind(DIMENSION, DEPTH)
    sizes = made.sizes(made.scores(*tokens([2, 3])))
    assert [size.shape[1] for size in sizes] == list(made.counts) == [2, 4, 7]
    assert made.width == 7
    for size_NK in sizes:
        torch.testing.assert_close(size_NK.norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("kind", [AttendingAdapter, AttendingSoftmax])
def test_outputs_start_with_one_deviation(kind):
    made, read = kind(DIMENSION, DEPTH), tokens([2, 3, 4, 5])
    made.start(*read)
    torch.testing.assert_close(made.scores(*read).std(dim=0), torch.full((7,), DEEPEST))


def test_an_adapter_keeps_means_and_softmaxes_move_them_to_their_offsets():
    read = tokens([2, 3, 4, 5])
    torch.manual_seed(2)
    adapter = AttendingAdapter(DIMENSION, DEPTH)
    softmax = AttendingSoftmax(DIMENSION, DEPTH)
    softmax.attention.load_state_dict(adapter.attention.state_dict())
    adapter.start(*read)
    softmax.start(*read)
    mean_W = adapter.scores(*read).mean(dim=0)
    assert mean_W.abs().max() > 0.01
    torch.testing.assert_close(softmax.scores(*read).mean(dim=0), torch.zeros(7), atol=1e-6, rtol=0)
    first_two = torch.softmax(mean_W[:2], dim=0) * 2 - 1
    torch.testing.assert_close(softmax.offsets[0].detach(), first_two.detach())
