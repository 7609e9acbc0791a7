"""Save the trained routers of all methods, or open them for routing in numpy."""

from pathlib import Path

from rayhier.model.ehi import EhiRouter
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.opened_router import OpenedRouter, Weights, router_of, write_router
from rayhier.model.retreever import RetreeverRouter

TrainedRouter = EhiRouter | LearnedIvfRouter | RetreeverRouter


def save_router(router: TrainedRouter, folder: Path) -> None:
    write_router(router.config(), _weights(router), folder)


def opened(router: TrainedRouter) -> OpenedRouter:
    """Open a router in training for routing in numpy. On the CPU both routers share weights."""
    return router_of(router.config(), _weights(router))


def _weights(router: TrainedRouter) -> Weights:
    return {name: tensor.detach().cpu().numpy() for name, tensor in router.state_dict().items()}
