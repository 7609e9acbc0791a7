"""Interface, saving and loading of all methods' routers, which choose leaves for queries and documents."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rayhier.model.cells import Cells
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded, Reader
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.retreever import RetreeverRouter


class Router(Protocol):
    @property
    def n_leaves(self) -> int: ...

    @property
    def levels(self) -> int: ...

    @property
    def reader(self) -> Reader | None:
        """Function that computes `Encoded.token_scores`. None if the router reads vectors."""

    @property
    def device(self) -> torch.device: ...

    @property
    def cells(self) -> Cells:
        """Centroids of the leaves, which choose documents' second leaves; in a learned IVF their first leaves too."""

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Choose the leaves [n, k] that queries visit, best first, for k = min(beam, leaves).

        Also returns log-probabilities [n, k] that a leaf holds a query's answer. A router with beams of its own has -1
        for leaves that a query does not visit.
        """

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """Choose the leaves [n, k] where documents most probably lie, with log-probabilities [n, k]."""

    def multiply_adds(self, beam: int) -> int: ...


CONFIG = "config.json"
WEIGHTS = "router.safetensors"


TrainedRouter = EhiRouter | LearnedIvfRouter | RetreeverRouter


def save_router(router: TrainedRouter, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(router.config(), indent=1) + "\n")
    save_file({name: tensor.contiguous() for name, tensor in router.state_dict().items()}, folder / WEIGHTS)


def load_router(folder: Path, device: torch.device | None = None) -> Router:
    """Load a router, ready to route, by default on the CPU. ValueError if its type is unknown."""
    config, weights = json.loads((folder / CONFIG).read_text()), load_file(folder / WEIGHTS)
    router: nn.Module
    match config.pop("type"):
        case "ehi":
            router = EhiRouter(**config)
        case "learned_ivf":
            if "branching" in config:
                _rename(config, weights)
            router = LearnedIvfRouter(**config)
        case "retreever":
            router = RetreeverRouter(**config)
        case kind:
            raise ValueError(f"{folder / CONFIG}: router type {kind!r}; allowed: 'ehi', 'learned_ivf', 'retreever'")
    router.load_state_dict(weights)
    return router.to(device).eval().requires_grad_(requires_grad=False)


def _rename(config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Give a learned IVF of rayhier 0.2.0, in place, the names of today. ValueError if it has several levels."""
    if config.pop("height") > 1:
        raise ValueError("router.height: got a tree of several levels; allowed: 1; build the index again")
    config["leaves"] = config.pop("branching")
    weights.update({name: weights.pop(f"{name}.0") for name in ("W", "b")})
    weights.pop("reach_T", None)


UNREAD = "the router reads tokens, and only vectors are known; give it the texts"
FLOATS_AT_ONCE = 1 << 23
"""Most scores of leaves in memory at a time; limits the batches of `route_all` and `place_all`."""


@torch.inference_mode()
def route_all(router: Router, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
    """Route queries as `Router.route` does, in batches, to tensors on the CPU. ValueError if tokens are missing."""
    return _batched(router, router.route, encoded, beam, router.n_leaves)


@torch.inference_mode()
def place_all(router: Router, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
    """Place documents as `Router.place` does, in batches, to tensors on the CPU. ValueError if tokens are missing."""
    return _batched(router, router.place, encoded, count, router.cells.compared)


def _batched(
    router: Router, way: Callable[[Encoded, int], tuple[Tensor, Tensor]], encoded: Encoded, count: int, width: int
) -> tuple[Tensor, Tensor]:
    if router.reader is not None and encoded.token_scores is None:
        raise ValueError(UNREAD)
    rows = max(1, min(8192, FLOATS_AT_ONCE // width))
    parts = [
        way(encoded[begin : begin + rows].to(router.device), count) for begin in range(0, max(1, len(encoded)), rows)
    ]
    leaves, log_probs = (torch.cat([part.cpu() for part in column]) for column in zip(*parts, strict=True))
    return leaves, log_probs
