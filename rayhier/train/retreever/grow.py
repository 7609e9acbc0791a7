"""Trains ReTreever's tree on the vectors of an encoder: start, training, and the router that holds the tree."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import leaf_means
from rayhier.model.retreever import AttentionSplits, RetreeverRouter
from rayhier.spec.router import RetreeverRouting
from rayhier.spec.train import RetreeverTraining
from rayhier.spec.train.retreever import Schedule
from rayhier.train.examples import Examples
from rayhier.train.group import WorkerGroup
from rayhier.train.loop import Phase
from rayhier.train.retreever.adapter import Adapter
from rayhier.train.retreever.dev import SizesMeasure
from rayhier.train.retreever.document_queries import asking, reading, with_asked
from rayhier.train.retreever.matching import AT_ONCE, Matching, Read, from_tower
from rayhier.train.retreever.start import principal, sizes, start_at_directions, start_at_random, start_between_halves
from rayhier.train.tower import Tower, encode_side

ADAPTER_RATE = 1e-3
"""Learning rate of the adapter, a linear map that is trained first; the splits of a tree start at its directions."""
READ = 64
"""Texts whose tokens are read at a time, without gradient."""
NONE: Ints = np.zeros(0, np.int64)
SETTLED = 512
"""Documents on which the first scores of attention splits are centred and scaled."""


def grow(
    tower: Tower,
    examples: Examples,
    router: RetreeverRouting,
    spec: RetreeverTraining,
    seed: int,
    measure: SizesMeasure,
    run: Callable[[str, Phase], None],
    read: Read | None = None,
    held_N: Ints = NONE,
) -> RetreeverRouter:
    """Train a tree of the router's spec and return its router; `run` is called with each phase's name and the phase.

    The tree reads the tensors that `read` gives for texts, by default the tower's vectors. Documents in `held_N`, by
    row, stand for dev queries, so that none is trained with as a query.
    """
    group, dimension = WorkerGroup(), examples.document_NM.shape[1]
    document_NM = encode_side(tower, "document", dimension, group)
    examples, asking_too = with_documents(examples, document_NM, spec, seed, held_N)
    vectors = asking_too(from_tower(tower))
    read = vectors if read is None else asking_too(read)
    direction_DM: Tensor | None = None
    if router.splits != "attention" and spec.start in ("auto", "mrl"):
        begin_MM = principal(document_NM, seed) if group.rank == 0 else torch.eye(dimension)
        adapter = Adapter(begin_MM, sizes(dimension))
        all_sizes: Schedule = "matryoshka"
        phase = Matching(
            adapter, tower, examples, spec, seed, measure, read=read, schedule=all_sizes, rate=ADAPTER_RATE
        )
        run("adapter", phase)
        direction_DM = adapter.weight.detach().cpu()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        grown = RetreeverRouter(
            dimension,
            router.depth,
            router.splits,
            router.aggregation,
            router.propagation,
            router.dropout,
            spec.similarity,
        )
    grown.to(tower.device)
    if group.rank == 0:
        _start(grown, spec, document_NM, direction_DM, seed, read)
    at_once = READ if router.splits == "attention" else AT_ONCE
    phase = Matching(
        grown.representations,
        tower,
        examples,
        spec,
        seed,
        measure,
        read=read,
        vectors=vectors,
        anchor=spec.held(router.splits),
        at_once=at_once,
    )
    run("tree", phase)
    _keep_cells(grown, document_NM, phase)
    return grown


def with_documents(
    examples: Examples, document_NM: Floats, spec: RetreeverTraining, seed: int, held_N: Ints = NONE
) -> tuple[Examples, Callable[[Read], Read]]:
    """Add documents as queries to the examples, as many as the spec says; the first worker draws them.

    Also returns a function that wraps a `Read` so that it reads them as queries. Documents at rows `held_N` stand for
    dev queries and are not added.
    """
    if not spec.documents or examples.same:
        return examples, lambda read: read
    group, queries = WorkerGroup(), len(examples.query_QM)
    drawn = asking(examples, document_NM, spec.documents, seed, held_N) if group.rank == 0 else None
    row_R, answer_R = group.agree(drawn)
    return with_asked(examples, row_R, answer_R), partial(reading, queries=queries, row_R=row_R)


def _start(
    router: RetreeverRouter,
    spec: RetreeverTraining,
    document_NM: Floats,
    direction_DM: Tensor | None,
    seed: int,
    read: Read,
) -> None:
    splits = router.splits
    if isinstance(splits, AttentionSplits):
        rows = np.random.default_rng(seed).permutation(len(document_NM))[:SETTLED]
        removed_S = splits.scale(*read("document", rows))
    elif direction_DM is not None:
        removed_S = start_at_directions(splits, direction_DM, document_NM, seed)
    elif spec.start == "kmeans":
        removed_S = start_between_halves(splits, document_NM, seed)
    else:
        removed_S = start_at_random(splits, document_NM, seed)
    router.representations.begin(removed_S)


@torch.no_grad()
def _keep_cells(router: RetreeverRouter, document_NM: Floats, phase: Matching) -> None:
    """Store each leaf's mean vector in the first worker's router; second leaves are chosen by these."""
    leaf_N = phase.leaves(router.representations.tree)
    if len(document_NM):
        router.cells.centroid_LM.copy_(torch.from_numpy(leaf_means(document_NM, leaf_N, router.n_leaves)))
