"""Interface of the routers of all methods, which send texts to leaves; saving and loading them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rayhier.model.cells import Cells
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded, Reader
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.own_beam import OwnBeam
from rayhier.model.retreever import RetreeverRouter


class Router(Protocol):
    """A tree of `levels` levels below the root, with `n_leaves` leaves."""

    @property
    def n_leaves(self) -> int:
        """Number of leaves of the tree."""

    @property
    def levels(self) -> int:
        """Number of levels below the root."""

    @property
    def reader(self) -> Reader | None:
        """Function that scores a text's tokens, for `Encoded.token_scores`; None where the router reads its vector."""

    @property
    def device(self) -> torch.device:
        """Device of the weights."""

    @property
    def cells(self) -> Cells:
        """Centroids by which second leaves are chosen; by a learned IVF, first leaves too."""

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Leaves [n, beam] that a query visits, best first, and their log-probabilities [n, beam]."""

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """Leaves [n, count] where a document belongs, best first, and their log-probabilities [n, count]."""

    def multiply_adds(self, beam: int) -> int:
        """Multiply-adds of routing one text, with all nodes that the beam expands."""


CONFIG = "config.json"
WEIGHTS = "router.safetensors"


TrainedRouter = EhiRouter | LearnedIvfRouter | RetreeverRouter
"""Routers that training makes and `save_router` writes."""


def save_router(router: TrainedRouter, folder: Path) -> None:
    """Write `config.json` and `router.safetensors`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(router.config(), indent=1) + "\n")
    save_file({name: tensor.contiguous() for name, tensor in router.state_dict().items()}, folder / WEIGHTS)


def load_router(folder: Path, device: torch.device | None = None) -> Router:
    """Load a router that `save_router` wrote, ready to route on a device, by default the CPU."""
    config = json.loads((folder / CONFIG).read_text())
    router: nn.Module
    match config.pop("type"):
        case "ehi":
            router = EhiRouter(**config)
        case "learned_ivf":
            router = LearnedIvfRouter(**config)
        case "retreever":
            router = RetreeverRouter(**config)
        case other:
            raise ValueError(f"{folder / CONFIG}: router type {other!r}; allowed: 'ehi', 'learned_ivf', 'retreever'")
    router.load_state_dict(load_file(folder / WEIGHTS))
    return router.to(device).eval().requires_grad_(requires_grad=False)


def own_beams(router: Router, target: float) -> Router:
    """Wrap a router so that queries stop where an answer is improbable; ValueError where it was not calibrated."""
    if not isinstance(router, LearnedIvfRouter):  # spec.router.calibrates refuses the others earlier
        raise ValueError("only a learned_ivf router knows how probable an answer is")
    return OwnBeam(router, target)


UNREAD = "the router reads tokens, and only vectors are known; give it the texts"
"""Message of a router that reads tokens where only vectors are given."""
FLOATS_AT_ONCE = 1 << 26
"""Most scores of leaves that are in memory at a time."""


@torch.inference_mode()
def route_all(router: Router, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
    """Route many queries in batches, so that memory grows neither with queries nor with leaves; results on the CPU.

    ValueError where the router reads tokens, but `encoded` has only vectors.
    """
    return _batched(router, router.route, encoded, beam, router.n_leaves)


@torch.inference_mode()
def place_all(router: Router, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
    """Place many documents in batches, so that memory grows neither with documents nor leaves; results on the CPU.

    ValueError where the router reads tokens, but `encoded` has only vectors.
    """
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
    return torch.cat([leaves.cpu() for leaves, _ in parts]), torch.cat([log_probs.cpu() for _, log_probs in parts])
