"""The learned factor of similarities."""

import pytest
import torch

from rayhier.train.retreever.matching import Scale


@pytest.mark.parametrize(("start", "most"), [(20.0, 100.0), (300.0, 10_000.0), (0.5, 0.75)])
def test_the_scale_starts_where_it_is_told_and_never_exceeds_the_greatest(start, most):
    scale = Scale(start, most)
    assert scale().item() == pytest.approx(start)
    with torch.no_grad():
        scale.log.fill_(50.0)
    assert scale().item() == pytest.approx(most)
    scale().backward()
    assert scale.log.grad.item() == pytest.approx(most)
