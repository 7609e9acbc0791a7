"""An encoder as one call: a TorchScript trace of its layers, which computes without Python's global lock.

Called layer by layer, threads that encode at once wait for each other (`python -m benchmarks.trace`).
"""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from rayhier.model.encoder import Encoder

Layers = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From token ids [n, t] and a mask [n, t], the tokens' vectors [n, t, m'] and the texts' float32 vectors [n, m]."""

TRACED, TRIED = (3, 12), ((1, 9), (4, 24))
"""Texts and tokens of the batch that is traced, and of those that compare the trace with the encoder."""
RUNS = 3
"""Calls of each batch. TorchScript prepares its own plan in the second."""


class BothOutputs(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids_NT: Tensor, mask_NT: Tensor) -> tuple[Tensor, Tensor]:
        hidden_NTM = self.encoder.hidden(ids_NT, mask_NT)
        return hidden_NTM, self.encoder.pool(hidden_NTM, mask_NT)


def traced(encoder: Encoder, longest: int) -> Layers:
    """Trace an encoder that is not trained any more, or return it as it is if its trace computes other bits."""
    layers = BothOutputs(encoder).eval()
    traced_on, *tried_on = (_texts(encoder, n, min(t, longest)) for n, t in (TRACED, *TRIED, (1, longest)))
    with _quiet(), torch.no_grad():
        try:
            whole = torch.jit.trace(layers, traced_on, check_trace=False)  # type: ignore[no-untyped-call]
            one_call: Layers = torch.jit.freeze(whole)
        except (RuntimeError, TypeError, ValueError):  # what tracing raises, by what it meets in the model's code
            return layers
    with torch.inference_mode():
        is_same = all(_agree(one_call, layers, batch) for batch in tried_on)
    return one_call if is_same else layers


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide that TorchScript is deprecated (torch.compile needs a C++ compiler), and what tracing meets."""
    logger = logging.getLogger("transformers")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


def _agree(one_call: Layers, layers: Layers, batch: tuple[Tensor, Tensor]) -> bool:
    try:
        return all(all(map(torch.equal, one_call(*batch), layers(*batch))) for _ in range(RUNS))
    except RuntimeError:  # a size that the trace took for a constant
        return False


def _texts(encoder: Encoder, n: int, t: int) -> tuple[Tensor, Tensor]:
    padding = encoder.tokenizer.pad_token_id or 0
    mask_NT = (torch.arange(t) < torch.tensor([max(1, t - 3 * row) for row in range(n)])[:, None]).long()
    ids_NT = torch.arange(n * t).reshape(n, t) % encoder.transformer.config.vocab_size
    return torch.where(mask_NT.bool(), ids_NT, padding), mask_NT
