"""Train EHI's encoder and router together by three losses: Algorithm 1 of the paper that model/ehi.py names."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints, Values
from rayhier.cluster.kmeans import hierarchical_kmeans, leaf_means, spherical_kmeans
from rayhier.cluster.neighbours import Neighbours
from rayhier.dataset.balance import balance
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.model.ehi import WARM_SCALE, Batch, EhiRouter, Losses, ehi_losses
from rayhier.model.encoded import Encoded
from rayhier.model.placing import parts
from rayhier.model.router import opened
from rayhier.search.segment.exact import best_results
from rayhier.search.segment.scan import ListedRows, scan
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import EhiTraining
from rayhier.train.batch import encode
from rayhier.train.dev_measures import DEPTH, DevJudge, DevMeasured, error_to_best
from rayhier.train.examples import Examples
from rayhier.train.group import WorkerGroup
from rayhier.train.loop import Learner, Phase
from rayhier.train.pairs import Pairs, Search, draw
from rayhier.train.tower import Side, Tower

VISITED = (0.05, 0.1, 0.2)
MEASURES = ("R@10", "R@100")
MOST_READ = 200_000
"""Largest number of documents from which a tree of several levels is started. Of a larger corpus, a random sample is
read."""
STEPS, BATCH, RATE = 1_000, 512, 3e-3
LOSSES = ("semantic", "indexing", "intra_leaf", "total")
MINING_BEAM = 4


@dataclass(frozen=True)
class TrainedIndex:
    """The index that the current encoder and router give: documents' vectors in leaves."""

    router: EhiRouter
    document_NM: Floats
    dev_QM: Floats
    leaf_N: Ints
    result_N: Ints | None = None
    """Number [n] of the result that each document belongs to. None if each document is a separate result."""
    group: WorkerGroup = field(default_factory=WorkerGroup)

    @classmethod
    def of(cls, router: EhiRouter, document_NM: Floats, dev_QM: Floats, result_N: Ints | None = None) -> Self:
        """Place documents in leaves. Each worker places a share."""
        trained, group = opened(router), WorkerGroup()
        parts_N1 = group.each(lambda part: trained.choose(Encoded(document_NM[part]), 1), parts(len(document_NM)))
        return cls(router, document_NM, dev_QM, np.concatenate(parts_N1)[:, 0], result_N, group)

    def leaves(self, vector_QM: Floats, beam: int) -> Ints:
        return opened(self.router).choose(Encoded(vector_QM), beam)

    @cached_property
    def sizes(self) -> Ints:
        return np.bincount(self.leaf_N, minlength=self.router.n_leaves).astype(np.int64)

    def scan(self, vector_QM: Floats, leaves_QB: Ints, k: int) -> tuple[Floats, Ints]:
        """Return scores and rows [q, k] of each query's best results in its leaves. Missing results are -inf and -1."""
        rows, order_N = self._listed

        def fetch(count: int) -> tuple[Floats, Ints]:
            score_QT, row_QT = scan(rows, vector_QM, leaves_QB, count).arrays
            return score_QT, np.where(row_QT < 0, -1, order_N[row_QT])

        return best_results(fetch, self.result_N, len(order_N), k)

    @cached_property
    def _listed(self) -> tuple[ListedRows, Ints]:
        """Sort the documents by leaf. Returns their vectors for a scan, and the row [n] in `document_NM` of each."""
        order_N = np.argsort(self.leaf_N, kind="stable")
        cuts = np.split(order_N, np.cumsum(self.sizes)[:-1])
        return ListedRows(self.sizes, lambda leaf: self.document_NM[cuts[leaf]]), order_N


Measure = Callable[[TrainedIndex], DevMeasured]


class Joint(Phase):
    def __init__(
        self, tower: Tower, examples: Examples, router: EhiRouting, spec: EhiTraining, seed: int, measure: Measure
    ) -> None:
        self.spec, self.tower, self.examples, self._measure = spec, tower, examples, measure
        n, m = examples.document_NM.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.router = EhiRouter(m, router.children(n), router.height, "relu")
        if router.warm_start == "kmeans":
            warm_start(self.router, examples.document_NM, seed)
        self.router.to(tower.device)
        modules = {"encoder": tower.module, "router": self.router}
        self.learner = Learner(modules, (spec.encoder_lr, spec.router_lr))
        self.learner.kept["top"] = torch.zeros(0, dtype=torch.float64)
        self.pairs = Pairs(
            tower, examples, spec.hard_negatives.source, spec.batch_size, spec.epochs, seed, self.learner
        )
        self.epochs, self.measure_every = spec.epochs, spec.between(spec.epochs)
        self._snapshot: tuple[int, TrainedIndex] | None = None

    def run_pass(self, epoch: int) -> dict[str, float]:
        sums, steps = torch.zeros(len(LOSSES), device=self.tower.device), 0
        for _, rows, generator in self.pairs.steps(epoch, self.search):
            losses = self.step(rows, draw(self.pairs.mined[rows], 1, generator)[:, 0])
            sums += torch.stack([getattr(losses, name).detach() for name in LOSSES])
            steps += 1
        means = (self.learner.group.sum(sums) / steps).tolist()
        return {f"loss_{name}": value for name, value in zip(LOSSES, means, strict=True)}

    def measure(self) -> dict[str, float]:
        now = self.snapshot()
        measured = self._measure(now)
        error = error_to_best(measured, self.learner.kept)
        return {"dev": measured.dev, "error": error, **measured.values, **balance(now.sizes)}

    def finish(self) -> None:
        """Store each leaf's mean vector in the router. The means choose second leaves."""
        now = self.snapshot()
        means_LM = leaf_means(now.document_NM, now.leaf_N, self.router.n_leaves)
        self.router.cells.centroid_LM.copy_(torch.from_numpy(means_LM))

    def snapshot(self) -> TrainedIndex:
        if self._snapshot is None or self._snapshot[0] != self.learner.version:
            document_NM, dev_QM = self.pairs.side("document"), self.pairs.side("dev")
            index = TrainedIndex.of(self.router, document_NM, dev_QM, self.examples.result_N)
            self._snapshot = self.learner.version, index
        return self._snapshot[1]

    def step(self, rows: Ints, hard_N: Ints) -> Losses:
        batch, backward = self.batch(rows, hard_N)
        losses = ehi_losses(batch, self.spec.loss)
        self.learner.step(losses.total, 0.0, backward)
        return losses

    def batch(self, rows: Ints, hard_D: Ints) -> tuple[Batch, Callable[[], None]]:
        """Encode this worker's pairs, with their hard negatives at rows `hard_D` (-1: none).

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
        (query_NM, positive_NM, *hard), backward = encode(self.tower, asks)
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
        now, query_QM = self.snapshot(), self.pairs.side("query")
        hard, (query_P, document_P) = self.spec.hard_negatives, self.examples.pair_P2.T
        documents = Neighbours(now.document_NM) if hard.source == "exact" else None

        def best(part: Ints, k: int) -> Ints:
            vectors = query_QM[query_P[part]]
            if documents is not None:
                return documents.search(vectors, k)[0]
            if hard.source == "query_leaves":
                leaves = now.leaves(vectors, MINING_BEAM)
            else:
                leaves = now.leaves(now.document_NM[document_P[part]], 1)
            return now.scan(vectors, leaves, k)[1]

        return best


class DevMeasure:
    def __init__(self, queries: Queries, result_ids: Sequence[str], answers: Collection[str] = ()) -> None:
        self.result_ids = pa.array(result_ids, pa.string())
        self.judge = DevJudge(queries, MEASURES, answers)

    def __call__(self, now: TrainedIndex) -> DevMeasured:
        """Compute R@10 and R@100 if queries visit 5, 10 and 20% of the documents, interpolated between beams."""
        # Curves begin at (0, 0). A collapsed index cannot visit so few documents, and is interpolated from there.
        visited: list[float] = [0.0]
        curve = [DevMeasured({}, np.zeros(len(now.dev_QM)))]
        for beam in doublings(now.router.n_leaves):
            (leaves_QB,) = now.group.each(partial(now.leaves, now.dev_QM), [beam])  # alike on all workers
            visited_Q = now.sizes[leaves_QB].sum(axis=1)
            best = now.group.spread(lambda query_QM, list_QB: now.scan(query_QM, list_QB, DEPTH), now.dev_QM, leaves_QB)
            ranking = whole_scan(*best, self.result_ids, visited_Q)
            visited.append(float(visited_Q.mean()) / len(now.document_NM))
            curve.append(self.judge.measured(ranking))
            if visited[-1] >= max(VISITED):
                break
        # In a tree of several levels, a wider beam may visit slightly fewer documents.
        order = np.argsort(visited, kind="stable")
        at = np.array(visited)[order]

        def read(values: Sequence[float] | Values, share: float) -> float:
            return float(np.interp(share, at, np.asarray(values)[order]))

        values = {
            f"{measure}@{share:.0%}": read([point.values.get(measure, 0.0) for point in curve], share)
            for measure in curve[-1].values
            for share in VISITED
        }
        share_BQ = np.stack([point.share_Q for point in curve])
        return DevMeasured(
            values, np.array([np.mean([read(share_B, share) for share in VISITED]) for share_B in share_BQ.T])
        )


def doublings(leaves: int) -> list[int]:
    """List the beams that each measurement tries: powers of two, then all leaves.

    >>> doublings(40)
    [1, 2, 4, 8, 16, 32, 40]
    """
    return [*(1 << power for power in range((leaves - 1).bit_length())), leaves]


def warm_start(router: EhiRouter, vectors_NM: Floats, seed: int) -> None:
    """Make `router` send vectors [n, m] to the same leaves as spherical k-means."""
    rng, every_NM, group = np.random.default_rng(seed), vectors_NM, WorkerGroup()
    if len(vectors_NM) > MOST_READ:
        vectors_NM = vectors_NM[np.sort(rng.choice(len(vectors_NM), MOST_READ, replace=False))]
    vectors_NM = vectors_NM.astype(np.float32, copy=False)
    # This scale gives 20 x cosine, also if vectors are longer than 1.
    length = float(np.linalg.norm(vectors_NM, axis=1).mean())
    if router.height == 1:
        centroid_LM = spherical_kmeans(every_NM, router.branching, seed, each=group.each)
        router.warm_start(torch.from_numpy(centroid_LM / length))
        return
    levels = hierarchical_kmeans(vectors_NM, router.branching, router.height, seed)
    centroids = [torch.from_numpy(level / length) for level in levels]
    router.warm_start(centroids[0][0])
    fit(router, torch.from_numpy(vectors_NM), centroids, rng)


def fit(router: EhiRouter, x_NM: Tensor, centroids: list[Tensor], rng: np.random.Generator) -> None:
    """Train each level to the probabilities softmax(20 cosine) of its k-means centroids [nodes above, branching, m]."""
    draw = torch.Generator().manual_seed(int(rng.integers(2**31)))
    optimizer = torch.optim.AdamW(router.parameters(), lr=RATE, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    for _ in range(STEPS):
        rows = torch.from_numpy(rng.integers(0, len(x_NM), min(BATCH, len(x_NM))))
        path_NH, targets = walk(x_NM[rows], centroids, draw)
        optimizer.zero_grad()
        levels = router.given_path(x_NM[rows], path_NH)
        losses = [F.cross_entropy(log_p, target) for log_p, target in zip(levels, targets, strict=True)]
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def walk(x_NM: Tensor, centroids: list[Tensor], draw: torch.Generator) -> tuple[Tensor, list[Tensor]]:
    """Draw paths of vectors [n, m] down a k-means tree. Returns children [n, height] and each level's probabilities."""
    node_N = torch.zeros(len(x_NM), dtype=torch.long)
    children, targets = [], []
    for level in centroids:
        centroid_NBM = level[node_N]
        logits_NB = WARM_SCALE * torch.einsum("nm,nbm->nb", x_NM, centroid_NBM)
        missing_NB = ~centroid_NBM.any(dim=2)
        missing_NB[missing_NB.all(dim=1)] = False
        targets.append(logits_NB.masked_fill(missing_NB, -torch.inf).softmax(dim=1))
        children.append(torch.multinomial(targets[-1], 1, generator=draw)[:, 0])
        node_N = node_N * level.shape[1] + children[-1]
    return torch.stack(children, dim=1), targets
