"""Train vectors of several sizes. At each size, a query picks its document in the batch, and a document its query."""

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints
from rayhier.model.retreever import NodeTree, Representations, similarities
from rayhier.spec.train import RetreeverTraining
from rayhier.spec.train.retreever import Comparison, Schedule
from rayhier.train.examples import Examples, batches
from rayhier.train.loop import Descent, Learner, Phase
from rayhier.train.retreever.dev import SizesMeasure
from rayhier.train.tower import Side, Tower, divided

DESCENT = Descent(betas=(0.9, 0.95), decay=0.05, decays="matrices", warm_up=0.05, clip=1.0)
AT_ONCE = 16_384
FLOATS = 1 << 24

Read = Callable[[Side, Ints], tuple[Tensor, ...]]
"""Function from a side and rows to tensors of their texts: vectors [n, m]. If tokens are read, tokens' vectors [n, t,
m] and a mask [n, t], 1 on tokens."""


def from_tower(tower: Tower) -> Read:
    return lambda side, rows: (tower.infer(side, rows),)


SCALES: dict[Comparison, tuple[float, float]] = {"tv": (300.0, 10_000.0), "cosine": (20.0, 100.0)}
"""Similarity -> its factor before the softmax of the loss: at the start, and the greatest that training may learn."""


class Scale(nn.Module):
    """A learned factor of similarities before a softmax, from `start` to at most `most`."""

    def __init__(self, start: float, most: float) -> None:
        super().__init__()
        self.log, self.most = nn.Parameter(torch.tensor(math.log(start))), most

    def forward(self) -> Tensor:
        with torch.no_grad():
            self.log.clamp_(max=math.log(self.most))
        return self.log.exp()


class MatchingPhase(Phase):
    def __init__(
        self,
        representations: Representations,
        tower: Tower,
        examples: Examples,
        spec: RetreeverTraining,
        seed: int,
        measure: SizesMeasure,
        *,
        read: Read | None = None,
        vectors: Read | None = None,
        anchor: float = 0.0,
        at_once: int = AT_ONCE,
        schedule: Schedule | None = None,
        rate: float | None = None,
    ) -> None:
        """Prepare to train on the tensors of `read`, by default the tower's vectors.

        `at_once` texts are read at a time, without gradient. `vectors` reads the encoder's vectors if `read` reads
        tokens. `anchor` weighs a loss that keeps the largest vectors' cosines near those of the encoder's vectors.
        """
        self.representations, self.tower = representations.to(tower.device).eval(), tower
        self.examples, self.known, self.seed = examples, examples.known(), seed
        self.spec, self.schedule, self.dev = spec, schedule or spec.schedule, measure
        self.read: Read = read or from_tower(tower)
        self.vectors: Read = vectors or self.read
        self.anchor, self.at_once = anchor, at_once
        self.scale = Scale(*SCALES[representations.similarity]).to(tower.device)
        modules, rate = {"representations": representations, "scale": self.scale}, rate or spec.router_lr
        self.learner = Learner(modules, (rate, rate), DESCENT)
        self.epochs = spec.passes(len(examples.pair_P2))
        self.measure_every = spec.between(self.epochs)

    def run_pass(self, epoch: int) -> dict[str, float]:
        self.representations.train()
        steps = batches(len(self.examples.pair_P2), self.spec.batch_size, self.seed, epoch)
        draws, losses = np.random.default_rng([self.seed, epoch, 1]), []
        for number, rows in enumerate(steps):
            torch.manual_seed(int(draws.integers(2**62)))  # for dropout masks
            done = (epoch * len(steps) + number) / (self.epochs * len(steps))
            losses.append(self.step(rows, done, float(draws.random())).detach())
        self.representations.eval()
        return {"loss_total": float(self.learner.group.sum(torch.stack(losses).sum()) / len(losses))}

    def step(self, rows: Ints, done: float, drawn: float) -> Tensor:
        loss = self.loss(rows, done, drawn)
        self.learner.step(loss, done)
        return loss

    def loss(self, rows: Ints, done: float, drawn: float) -> Tensor:
        group, (query_N, document_N) = self.learner.group, self.examples.pair_P2[rows].T
        shares = group.shares(np.arange(len(rows)))
        place_A, counts = shares[group.rank], [len(share) for share in shares]
        target_A = torch.from_numpy(place_A).to(self.tower.device)
        spared_NN = torch.from_numpy(self.known.among(query_N, document_N)).to(self.tower.device)
        spared_NN.fill_diagonal_(False)
        sides: list[tuple[Side, Ints]] = [("query", query_N[place_A]), ("document", document_N[place_A])]
        query_sizes, document_sizes = (self._sizes(side, row_A) for side, row_A in sides)
        scale, weights = self.scale(), level_weights(self.schedule, len(query_sizes), done, drawn)
        total, kind = scale.new_zeros(()), self.representations.similarity
        for weight, query_AK, document_AK in zip(weights, query_sizes, document_sizes, strict=True):
            if weight:
                to_documents = scale * similarities(query_AK, group.gather(document_AK, counts), kind)
                to_queries = to_documents.T
                if group.size > 1:
                    to_queries = scale * similarities(document_AK, group.gather(query_AK, counts), kind)
                size_loss = picks(to_documents, target_A, spared_NN[target_A]) + picks(
                    to_queries, target_A, spared_NN.T[target_A]
                )
                total = total + weight * size_loss
        loss = total / (2 * len(rows) * sum(weights))
        if self.anchor:
            vectors = [F.normalize(self.vectors(side, row_A)[0], dim=1) for side, row_A in sides]
            loss = loss + self.anchor * self._moved([query_sizes[-1], document_sizes[-1]], vectors, counts)
        return torch.as_tensor(loss)

    def _moved(self, deepest: Sequence[Tensor], vectors: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
        """Compute this worker's share of the anchor loss: squared changes of cosines between queries and documents."""
        gathered = [[self.learner.group.gather(part, counts) for part in parts] for parts in (deepest, vectors)]
        total = deepest[0].new_zeros(())
        for first_side, second_side in ((0, 0), (0, 1), (1, 1)):
            cosine_AN, base_AN = (
                parts[first_side] @ all_of[second_side].T
                for parts, all_of in zip((deepest, vectors), gathered, strict=True)
            )
            total = total + (cosine_AN - base_AN).square().sum()
        return total / sum(counts) ** 2

    def _sizes(self, side: Side, rows: Ints) -> list[Tensor]:
        return self.representations.sizes(self.representations.scores(*self.read(side, rows)))

    def measure(self) -> dict[str, float]:
        """Measure several sizes on dev. Later epochs overfit, so a later epoch that is as good is not preferred."""
        document_NW, dev_QW = self.scores("document", self.dev.row_N), self.scores("dev")
        document, dev = self._compared(document_NW), self._compared(dev_QW)
        measured = self.dev(document, dev, self.representations.similarity)
        return {"dev": measured.dev, **measured.values, "scale": float(self.scale().detach())}

    def _compared(self, score_NW: Floats) -> list[Floats]:
        """Compute the vectors [n, size] that dev measures: the largest, and those at 1/3 and 1/2 of all sizes."""
        last = len(self.representations.counts) - 1
        # Size 2 is left out, because the cosine of two numbers that sum to zero is 1 or -1.
        places = {last} if self.schedule == "constant" else {max(1, last // 3), max(1, last // 2), last}
        return size_all(self.representations, score_NW, sorted(place for place in places if place <= last))

    @torch.no_grad()
    def scores(self, side: Side, row_N: Ints | None = None) -> Floats:
        rows = np.arange(self.tower.size(side)) if row_N is None else row_N
        return self._divided(self.representations.scores, side, rows, self.representations.width)

    @torch.no_grad()
    def leaves(self, tree: NodeTree) -> Ints:
        """Find the most probable leaf [n] of every document."""

        def best(*read: Tensor) -> Tensor:
            return torch.as_tensor(tree(*read)[-1]).argmax(dim=1, keepdim=True)

        return self._divided(best, "document", np.arange(self.tower.size("document")), 1)[:, 0].astype(np.int64)

    def _divided(self, make: Callable[..., Tensor], side: Side, row_N: Ints, width: int) -> Floats:
        at_once = min(self.at_once, at_a_time(self.representations))

        def infer(part_N: Ints) -> Tensor:
            pieces = np.array_split(part_N, max(1, -(-len(part_N) // at_once)))
            return torch.cat([make(*self.read(side, piece)) for piece in pieces])

        return divided(infer, row_N, width, self.learner.group)


def picks(score_NC: Tensor, own_N: Tensor, spared_NC: Tensor) -> Tensor:
    """Compute cross-entropy, summed over rows. Row i picks column `own_N[i]` among columns that `spared_NC` leaves."""
    return F.cross_entropy(score_NC.masked_fill(spared_NC, -torch.inf), own_N, reduction="sum")


def level_weights(schedule: Schedule, depth: int, done: float, drawn: float) -> Sequence[float]:
    """Return the loss weight of each level 1 to `depth`, after a share `done` of the steps.

    `stochastic` draws level d with a probability in proportion to d², by the random number `drawn` in [0, 1).

    >>> level_weights("linear", 4, 0.5, 0.0), level_weights("stochastic", 2, 0.0, 0.19)
    ([0.0, 0.0, 1.0, 0.0], [1.0, 0.0])
    """
    if schedule == "matryoshka":
        return [1.0] * depth
    match schedule:
        case "constant":
            level = depth
        case "linear":
            level = min(depth, 1 + int(done * depth))
        case "exponential":
            level = min(depth, 1 + int(depth * (2.0**done - 1)))
        case "stochastic":
            total, level, below = sum(d * d for d in range(1, depth + 1)), 0, 0
            while below <= drawn * total and level < depth:
                level += 1
                below += level * level
    return [float(number == level) for number in range(1, depth + 1)]


def at_a_time(representations: Representations) -> int:
    return max(64, FLOATS // representations.floats)


@torch.no_grad()
def size_all(representations: Representations, score_NW: Floats, places: Collection[int] | None = None) -> list[Floats]:
    """Compute vectors [n, size] of the sizes at `places` (None: all) from scores [n, w], in batches."""
    device, step = next(representations.parameters()).device, at_a_time(representations)
    parts = []
    for begin in range(0, max(1, len(score_NW)), step):
        vectors = representations.sizes(torch.from_numpy(score_NW[begin : begin + step]).to(device))
        parts.append([vectors[place].cpu() for place in (range(len(vectors)) if places is None else places)])
    return [torch.cat(batches).numpy() for batches in zip(*parts, strict=True)]
