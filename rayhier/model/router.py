"""What every method has in common: a router sends texts to leaves."""

import json
from pathlib import Path
from typing import Literal, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded


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

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Leaves [n, beam], most probable first, and their log-probabilities [n, beam]."""

    def multiply_adds(self, beam: int) -> int:
        """Multiply-adds of routing one text, every beam expansion counted."""


CONFIG = "config.json"
WEIGHTS = "router.safetensors"


def save_router(router: EhiRouter, folder: Path) -> None:
    """Write `config.json` and `router.safetensors`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(router.config(), indent=1) + "\n")
    save_file({name: tensor.contiguous() for name, tensor in router.state_dict().items()}, folder / WEIGHTS)


def load_router(folder: Path) -> Router:
    """The router a train step saved, ready to route."""
    config = json.loads((folder / CONFIG).read_text())
    router: nn.Module
    match config.pop("type"):
        case "ehi":
            router = EhiRouter(**config)
        case other:
            raise ValueError(f"{folder / CONFIG}: router type {other!r}; allowed: 'ehi'")
    router.load_state_dict(load_file(folder / WEIGHTS))
    return router.eval().requires_grad_(requires_grad=False)


@torch.inference_mode()
def route_all(router: Router, vectors_NM: Tensor, beam: int, batch: int = 8192) -> tuple[Tensor, Tensor]:
    """`route` for many vectors in batches, so that the router's memory does not grow with n; onto the CPU."""
    parts = [router.route(Encoded(part.to(router.device)), beam) for part in torch.split(vectors_NM, batch)]
    return torch.cat([leaves.cpu() for leaves, _ in parts]), torch.cat([log_probs.cpu() for _, log_probs in parts])
