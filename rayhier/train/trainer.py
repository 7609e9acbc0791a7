"""EHI's joint training: encoder and router by three losses at once; plain torch, one process or several.

The first worker mines and measures; the others share each batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from rayhier.cluster.kmeans import nearest
from rayhier.cluster.placing import leaf_means
from rayhier.model.ehi import EhiRouter
from rayhier.model.losses import Batch, Losses, ehi_losses
from rayhier.model.router import route_all
from rayhier.search.lists import Ints, LeafLists
from rayhier.spec.router import EhiSpec
from rayhier.spec.train import TrainSpec
from rayhier.storage.columns import Floats
from rayhier.train.caching import encode
from rayhier.train.examples import Examples
from rayhier.train.group import Group
from rayhier.train.negatives import Search
from rayhier.train.pairs import PairLoop
from rayhier.train.tower import Side, Tower
from rayhier.train.warm import warm_start

LOSSES = ("semantic", "indexing", "intra_leaf", "total")


@dataclass(frozen=True)
class Snapshot:
    """The index that encoder and router would make now."""

    router: EhiRouter
    document_NM: Floats
    """Trained vectors."""
    dev_QM: Floats
    """The same of the dev queries."""
    lists: LeafLists

    def leaves(self, vector_QM: Floats, beam: int) -> Ints:
        """Leaves [q, beam] of trained vectors [q, m]."""
        return route_all(self.router, torch.from_numpy(vector_QM), beam)[0].numpy()


Measure = Callable[[Snapshot], dict[str, float]]
"""Dev measures of a snapshot; `dev`, higher is better, picks the best."""


class Trainer(PairLoop):
    """Tower and router together."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        router: EhiSpec,
        spec: TrainSpec,
        seed: int,
        measure: Measure,
        group: Group | None = None,
    ) -> None:
        self.measure = measure
        n, m = examples.document_NM.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            branching = round(router.leaves(n) ** (1 / router.height))
            self.router = EhiRouter(m, branching, router.height, "none" if router.residual == "none" else "relu")
        if router.warm_start == "kmeans" and (group is None or group.rank == 0):
            warm_start(self.router, examples.document_NM, seed)
        self.router.to(tower.device)
        modules = {"encoder": tower.module, "router": self.router}
        super().__init__(tower, examples, spec, seed, "joint", modules, (spec.encoder_lr, spec.router_lr), group)
        self._now: Snapshot | None = None

    def _epoch(self) -> dict[str, float]:
        sums, steps = torch.zeros(len(LOSSES), device=self.tower.device), 0
        for _, rows, hard_N in self._pair_steps():
            losses = self._step(rows, hard_N)
            sums += torch.stack([getattr(losses, name).detach() for name in LOSSES])
            steps += 1
        means = (self.group.sum(sums) / steps).tolist()
        return {f"loss_{name}": value for name, value in zip(LOSSES, means, strict=True)}

    def _measured(self) -> dict[str, float]:
        now = self.snapshot()
        return self.measure(now) if self.group.rank == 0 else {}

    def _changed(self) -> None:
        self._now = None

    def note_cells(self) -> None:
        """Leave the means of each leaf with the first worker's router: second leaves are chosen by them."""
        now = self.snapshot()
        if len(now.document_NM):
            leaf_N = now.leaves(now.document_NM, 1)[:, 0]
            means_LM = leaf_means(now.document_NM, leaf_N, self.router.n_leaves)
            self.router.centroid_LM.copy_(torch.from_numpy(means_LM))

    def snapshot(self) -> Snapshot:
        """The index as it stands; whole on the first worker, without rows on the others."""
        if self._now is None:
            self._now = self._snapshot()
        return self._now

    def _snapshot(self) -> Snapshot:
        document_NM, dev_QM = self.side("document"), self.side("dev")
        leaves = route_all(self.router, torch.from_numpy(document_NM), 1)[0][:, 0].numpy()
        lists = LeafLists.build(document_NM, leaves, self.router.n_leaves, self.examples.copies)
        return Snapshot(self.router, document_NM, dev_QM, lists)

    # One step

    def _step(self, rows: Ints, hard_N: Ints) -> Losses:
        self.optimizer.zero_grad()
        batch, finish = self._batch(rows, hard_N)
        losses = ehi_losses(batch, self.spec.loss)
        losses.total.backward()  # type: ignore[no-untyped-call]
        finish()
        self.group.sum_gradients(self.parameters)
        self.optimizer.step()
        self._changed()
        return losses

    def _batch(self, rows: Ints, hard_D: Ints) -> tuple[Batch, Callable[[], None]]:
        """A worker's share of a batch, and what to call after the backward pass."""
        query_D, document_D = self.examples.pair_P2[rows].T
        shares = self.group.shares(np.arange(len(rows)))
        own = shares[self.group.rank]
        hard_N = hard_D[own]
        has_hard = bool((hard_D >= 0).any())
        asks: list[tuple[Side, Ints]] = [("query", query_D[own]), ("document", document_D[own])]
        asks += [("document", np.maximum(hard_N, 0))] if has_hard else []
        (query_NM, positive_NM, *hard), finish = encode(self.tower, asks, self.spec.micro_batch)
        positive_NT = self.router.path_embedding(positive_NM)
        both = self.group.gather(torch.cat([positive_NM, positive_NT], dim=1), [len(share) for share in shares])
        document_DM, document_DT = torch.split(both, [positive_NM.shape[1], positive_NT.shape[1]], dim=1)
        negative_ND = torch.from_numpy(~self.known.among(query_D[own], document_D))
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
            pairs=self.group.sum(float(negative_ND.sum())).to(device),
            hard=torch.tensor(int((hard_D >= 0).sum()), device=device),
        )
        return batch, finish

    def _search(self) -> Search:
        now, query_QM = self.snapshot(), self.side("query")
        hard, (query_P, document_P) = self.spec.hard_negatives, self.examples.pair_P2.T

        def search(part: slice, k: int) -> Ints:
            vectors = query_QM[query_P[part]]
            if hard.source == "exact":
                return np.asarray(nearest(vectors, now.document_NM, k)[0])
            if hard.source == "query_leaves":
                leaves = now.leaves(vectors, hard.beam)
            else:
                leaves = now.leaves(now.document_NM[document_P[part]], 1)
            return now.lists.search(vectors, leaves, k)[1]

        return search
