"""Find the greatest of very many scores on a GPU, for routers and searches that otherwise use numpy."""

import sys

from rayhier.arrays import Floats, Ints


def gpu() -> str | None:
    """Return "cuda" if this process may compute on a GPU, else None. A process without torch may not."""
    if "torch" not in sys.modules:
        return None
    from rayhier.model.precision import best_device

    return "cuda" if best_device().type == "cuda" else None


class Leaders:
    """Finds the greatest of the scores x Wᵀ + b. The device holds W [l, m] and b [l]."""

    def __init__(self, weight_LM: Floats, bias_L: Floats | None, device: str) -> None:
        import torch

        self._weight_LM = torch.from_numpy(weight_LM).to(device)
        self._bias_L = None if bias_L is None else torch.from_numpy(bias_L).to(device)

    def __call__(self, x_NM: Floats, count: int) -> tuple[Ints, Floats]:
        """Return the places [n, k] of the greatest scores of each row, and log softmax there. k = min(count, l)."""
        import torch

        x = torch.from_numpy(x_NM).to(self._weight_LM.device)
        score_NL = torch.nn.functional.linear(x, self._weight_LM, self._bias_L)
        best = score_NL.topk(min(count, score_NL.shape[1]), dim=1)
        log_p_NK = best.values - score_NL.logsumexp(dim=1, keepdim=True)
        return best.indices.cpu().numpy(), log_p_NK.cpu().numpy()
