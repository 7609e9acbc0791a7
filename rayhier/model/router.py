"""What every method has in common: a router sends texts to leaves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rayhier.model.cells import Cells
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.sparing import Sparing
from rayhier.model.taught import TaughtRouter


class Router(Protocol):
    """A tree of `levels` levels below the root, with `n_leaves` leaves."""

    @property
    def n_leaves(self) -> int:
        """Leaves of the tree."""

    @property
    def levels(self) -> int:
        """Levels below the root."""

    @property
    def reads(self) -> Literal["vectors", "tokens"]:
        """What `route` needs of a text."""

    @property
    def device(self) -> torch.device:
        """Where its weights lie."""

    @property
    def cells(self) -> Cells:
        """What second leaves are chosen by, and where there are prices the first ones too."""

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Leaves [n, beam] that a query visits, best first, and their log-probabilities [n, beam]."""

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """Leaves [n, count] where a document belongs, best first, and their log-probabilities [n, count]."""

    def multiply_adds(self, beam: int) -> int:
        """Multiply-adds of routing one text, every beam expansion counted."""


CONFIG = "config.json"
WEIGHTS = "router.safetensors"


def save_router(router: EhiRouter | TaughtRouter, folder: Path) -> None:
    """Write `config.json` and `router.safetensors`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(router.config(), indent=1) + "\n")
    save_file({name: tensor.contiguous() for name, tensor in router.state_dict().items()}, folder / WEIGHTS)


def load_router(folder: Path, device: torch.device | None = None) -> Router:
    """The router a train step saved, ready to route on a device; on the CPU where none is named."""
    config = json.loads((folder / CONFIG).read_text())
    router: nn.Module
    match config.pop("type"):
        case "ehi":
            router = EhiRouter(**config)
        case "taught":
            router = TaughtRouter(**config)
        case other:
            raise ValueError(f"{folder / CONFIG}: router type {other!r}; allowed: 'ehi', 'taught'")
    router.load_state_dict(load_file(folder / WEIGHTS))
    return router.to(device).eval().requires_grad_(requires_grad=False)


def sparing(router: Router, target: float) -> Router:
    """The router, its queries stopping where an answer is improbable; ValueError where it was not taught how."""
    if not isinstance(router, TaughtRouter):
        raise ValueError("only a taught router knows how probable an answer is")
    return Sparing(router, target)


FLOATS_AT_ONCE = 1 << 26


@torch.inference_mode()
def route_all(router: Router, query_NM: Tensor, beam: int) -> tuple[Tensor, Tensor]:
    """`route` of many queries in batches, so that memory grows neither with n nor with leaves; onto the CPU."""
    return _batched(router, router.route, query_NM, beam, router.n_leaves)


@torch.inference_mode()
def place_all(router: Router, document_NM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`place` of many documents in batches; onto the CPU."""
    return _batched(router, router.place, document_NM, count, router.cells.compared)


def _batched(
    router: Router, way: Callable[[Encoded, int], tuple[Tensor, Tensor]], x_NM: Tensor, count: int, width: int
) -> tuple[Tensor, Tensor]:
    rows = max(1, min(8192, FLOATS_AT_ONCE // width))
    parts = [way(Encoded(part.to(router.device)), count) for part in torch.split(x_NM, rows)]
    return torch.cat([leaves.cpu() for leaves, _ in parts]), torch.cat([log_probs.cpu() for _, log_probs in parts])
