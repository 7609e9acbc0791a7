"""Traces of encoders compute what the encoders do, bit by bit, or are not used."""

import pytest
import torch

from rayhier.model.encoder import Encoder
from rayhier.model.trace import BothOutputs, traced


def batch(n, t):
    ids = torch.randint(5, 30, (n, t), generator=torch.Generator().manual_seed(n * t))
    mask = (torch.arange(t) < torch.tensor([max(1, t - 2 * row) for row in range(n)])[:, None]).long()
    return ids * mask, mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["bert", "mpnet", "roberta", "distilbert", "albert", "modernbert"])
def test_a_trace_gives_the_encoders_bits(name, dtype, architecture):
    encoder = architecture(name, dtype).eval()
    layers = traced(encoder, encoder.longest)
    assert isinstance(layers, torch.jit.ScriptModule)
    with torch.inference_mode():
        for n, t in ((1, 1), (1, 5), (2, 30), (9, 17)):
            for got, expected in zip(layers(*batch(n, t)), BothOutputs(encoder)(*batch(n, t)), strict=True):
                assert torch.equal(got, expected)


def test_what_depends_on_the_batch_or_cannot_be_traced_computes_as_it_is(tiny_model, monkeypatch):
    encoder = Encoder(tiny_model, torch.float32).eval()
    hidden = encoder.hidden
    monkeypatch.setattr(encoder, "hidden", lambda ids, mask: hidden(ids, mask) * (1 + int(ids.shape[1]) % 2))
    assert isinstance(traced(encoder, 24), BothOutputs)
    monkeypatch.setattr(encoder, "pool", lambda hidden, _mask: {"vectors": hidden[:, 0]})
    assert isinstance(traced(encoder, 24), BothOutputs)
