"""EHI's joint training of encoder and router by three losses.

Kumar et al., "End-to-end Learning of Hierarchical Index for Efficient Dense Retrieval", Algorithm 1. The first worker
mines hard negatives and measures; the other workers share each batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import leaf_means, nearest
from rayhier.dataset.balance import balance
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.losses import Batch, Losses, ehi_losses
from rayhier.model.router import route_all
from rayhier.search.lists import LeafLists
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import EhiTraining
from rayhier.train.caching import encode
from rayhier.train.dev import Measured, error_to_best
from rayhier.train.ehi.warm import warm_start
from rayhier.train.examples import Examples
from rayhier.train.group import WorkerGroup
from rayhier.train.loop import Learner
from rayhier.train.negatives import Search, draw
from rayhier.train.pairs import Pairs
from rayhier.train.tower import Side, Tower

LOSSES = ("semantic", "indexing", "intra_leaf", "total")
MINING_BEAM = 4
"""Leaves that a query visits to find hard negatives."""


@dataclass(frozen=True)
class Snapshot:
    """The index that the current encoder and router give: documents' vectors in leaves."""

    router: EhiRouter
    document_NM: Floats
    """Trained vectors of the documents."""
    dev_QM: Floats
    """Trained vectors of the dev queries."""
    lists: LeafLists

    def leaves(self, vector_QM: Floats, beam: int) -> Ints:
        """Choose the leaves [q, beam] that queries with trained vectors [q, m] visit, most probable first."""
        return route_all(self.router, Encoded.of(vector_QM), beam)[0].numpy()


Measure = Callable[[Snapshot], Measured]
"""Function from the current index to measures on dev."""


class Joint:
    """The training phase of EHI: encoder and router learn together."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        router: EhiRouting,
        spec: EhiTraining,
        seed: int,
        measure: Measure,
        group: WorkerGroup | None = None,
    ) -> None:
        self.spec, self.tower, self.examples, self._measure = spec, tower, examples, measure
        n, m = examples.document_NM.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.router = EhiRouter(m, router.children(n), router.height, "relu")
        if router.warm_start == "kmeans" and (group is None or group.rank == 0):
            warm_start(self.router, examples.document_NM, seed)
        self.router.to(tower.device)
        modules = {"encoder": tower.module, "router": self.router}
        self.learner = Learner(modules, (spec.encoder_lr, spec.router_lr), group)
        self.learner.kept["top"] = torch.zeros(0, dtype=torch.float64)
        self.pairs = Pairs(tower, examples, spec.hard_negatives, spec.batch_size, spec.epochs, seed, self.learner)
        self.epochs, self.measure_every = spec.epochs, spec.between(spec.epochs)
        self._snapshot: tuple[int, Snapshot] | None = None

    def run_pass(self, epoch: int) -> dict[str, float]:
        """Run one pass over the pairs; returns the mean of each loss as `loss_` and its name."""
        sums, steps = torch.zeros(len(LOSSES), device=self.tower.device), 0
        for _, rows, generator in self.pairs.steps(epoch, self.search):
            losses = self.step(rows, draw(self.pairs.mined[rows], 1, generator)[:, 0])
            sums += torch.stack([getattr(losses, name).detach() for name in LOSSES])
            steps += 1
        means = (self.learner.group.sum(sums) / steps).tolist()
        return {f"loss_{name}": value for name, value in zip(LOSSES, means, strict=True)}

    def measure(self) -> dict[str, float]:
        """Measure the current index on dev, on every worker: measures by name, `dev`, `error`, and the leaves' balance.

        `dev` is the mean of the measures; `error` is the standard error of the difference to the best measurement so
        far, query by query.
        """
        now, group = self.snapshot(), self.learner.group
        measured = group.agree(self._measure(now) if group.rank == 0 else None)
        error = error_to_best(measured, self.learner.kept)
        return {"dev": measured.dev, "error": error, **measured.values, **balance(now.lists.sizes)}

    def finish(self) -> None:
        """Store each leaf's mean vector in the first worker's router; second leaves are chosen by these."""
        now = self.snapshot()
        if len(now.document_NM):
            leaf_N = now.leaves(now.document_NM, 1)[:, 0]
            means_LM = leaf_means(now.document_NM, leaf_N, self.router.n_leaves)
            self.router.cells.centroid_LM.copy_(torch.from_numpy(means_LM))

    def snapshot(self) -> Snapshot:
        """Build the current index: complete on the first worker, without rows on the others."""
        if self._snapshot is None or self._snapshot[0] != self.learner.version:
            document_NM, dev_QM = self.pairs.side("document"), self.pairs.side("dev")
            leaves = route_all(self.router, Encoded.of(document_NM), 1)[0][:, 0].numpy()
            lists = LeafLists.build(document_NM, leaves, self.router.n_leaves, self.examples.copies)
            self._snapshot = self.learner.version, Snapshot(self.router, document_NM, dev_QM, lists)
        return self._snapshot[1]

    def step(self, rows: Ints, hard_N: Ints) -> Losses:
        """Take a step on the pairs numbered `rows`, with a hard negative's row for each (-1: none); returns losses."""
        batch, backward = self.batch(rows, hard_N)
        losses = ehi_losses(batch, self.spec.loss)
        self.learner.step(losses.total, 0.0, backward)
        return losses

    def batch(self, rows: Ints, hard_D: Ints) -> tuple[Batch, Callable[[], None]]:
        """Encode this worker's share of the pairs numbered `rows`, and of their hard negatives.

        `hard_D` are the rows of the hard negatives (-1: none).

        Returns the inputs of the losses, and a function to call after the loss's backward pass.
        """
        group = self.learner.group
        query_D, document_D = self.examples.pair_P2[rows].T
        shares = group.shares(np.arange(len(rows)))
        share = shares[group.rank]
        hard_N = hard_D[share]
        has_hard = bool((hard_D >= 0).any())
        asks: list[tuple[Side, Ints]] = [("query", query_D[share]), ("document", document_D[share])]
        asks += [("document", np.maximum(hard_N, 0))] if has_hard else []
        (query_NM, positive_NM, *hard), backward = encode(self.tower, asks, self.spec.micro_batch)
        positive_NT = self.router.path_embedding(positive_NM)
        gathered = group.gather(torch.cat([positive_NM, positive_NT], dim=1), [len(share) for share in shares])
        document_DM, document_DT = torch.split(gathered, [positive_NM.shape[1], positive_NT.shape[1]], dim=1)
        negative_ND = torch.from_numpy(~self.pairs.known.among(query_D[share], document_D))
        device = self.tower.device
        batch = Batch(
            query_NM=query_NM,
            positive_NM=positive_NM,
            hard_NM=hard[0] if hard else None,
            hard_N=torch.from_numpy(hard_N >= 0).to(device),
            query_NT=self.router.path_embedding(query_NM),
            positive_NT=positive_NT,
            document_DM=document_DM,
            document_DT=document_DT,
            negative_ND=negative_ND.to(device),
            pairs=group.sum(float(negative_ND.sum())).to(device),
            hard=torch.tensor(int((hard_D >= 0).sum()), device=device),
        )
        return batch, backward

    def search(self) -> Search:
        """Make the search for hard negatives that the spec names: by the current index, or exact."""
        now, query_QM = self.snapshot(), self.pairs.side("query")
        hard, (query_P, document_P) = self.spec.hard_negatives, self.examples.pair_P2.T

        def best(part: slice, k: int) -> Ints:
            vectors = query_QM[query_P[part]]
            if hard.source == "exact":
                return np.asarray(nearest(vectors, now.document_NM, k)[0])
            if hard.source == "query_leaves":
                leaves = now.leaves(vectors, MINING_BEAM)
            else:
                leaves = now.leaves(now.document_NM[document_P[part]], 1)
            return now.lists.scan(vectors, leaves, k)[1]

        return best
