"""Train an encoder by HCE (model/hce.py, Algorithms 1-3), to tell an answer from the answer's siblings in a tree."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints, for_vectors
from rayhier.cluster.document_tree import DocumentTree, above, grow
from rayhier.cluster.kmeans import CAST_ROWS, refined
from rayhier.model.encoded import Encoded
from rayhier.model.hce import Hierarchy
from rayhier.model.layers import normalized
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.placing import place
from rayhier.model.router import opened
from rayhier.spec.train import HceTraining
from rayhier.train.batch import Ask, PairBatch
from rayhier.train.contrast import Contrast, Draw
from rayhier.train.dev_measures import Measure
from rayhier.train.examples import Examples, KnownPositives
from rayhier.train.loop import Descent, Learner
from rayhier.train.pseudo import PseudoPairs
from rayhier.train.tower import Tower

SPARE = 4
"""Number of further documents that are drawn with siblings, to replace siblings that are known answers."""
ROUNDS = 3
"""Iterations of k-means that move the trained centroids to the documents' trained vectors."""


class TrainingTree:
    """The tree of documents in a training. The number of nodes is fixed. A rebuilt tree has another shape."""

    def __init__(self, learner: Learner, hierarchy: Hierarchy, counts: Sequence[int], documents: int) -> None:
        """Keep an empty tree of `counts` nodes at its levels in `learner.kept`, which checkpoints hold."""
        self.learner, self.hierarchy, self.counts = learner, hierarchy, list(counts)
        for level, count in enumerate(self.counts):
            learner.kept[f"parent.{level}"] = torch.zeros(count, dtype=torch.long)
        learner.kept["leaf"] = torch.zeros(documents, dtype=torch.long)
        learner.kept["version"] = torch.zeros(1, dtype=torch.long)
        self._arranged = -1

    @property
    def version(self) -> int:
        return int(self.learner.kept["version"])

    def plant(self, document_NM: Floats, branching: int, seed: int) -> None:
        """Build the tree from directions of documents' vectors [n, m], together on all workers."""
        group, kept = self.learner.group, self.learner.kept
        self._note(grow(directions(document_NM), branching, seed, group.each))
        kept["version"] += 1
        tensors = [kept["leaf"], *(kept[f"parent.{level}"] for level in range(len(self.counts)))]
        moved = [tensor.to(self.learner.parameters[0].device) for tensor in tensors]
        group.copy_from_first([*moved, *(centroid.data for centroid in self.hierarchy.centroids)])
        for kept_tensor, tensor in zip(tensors, moved, strict=True):
            kept_tensor.copy_(tensor.cpu())
        for centroid in self.hierarchy.centroids:
            self.learner.optimizer.state.pop(centroid, None)

    @torch.no_grad()
    def _note(self, tree: DocumentTree) -> None:
        kept = self.learner.kept
        kept["leaf"].copy_(torch.from_numpy(tree.leaf_N))
        for level, parent_K in enumerate(tree.parents):
            kept[f"parent.{level}"].copy_(torch.from_numpy(parent_K))
        for centroid, level_KM in zip(self.hierarchy.centroids, tree.centroids, strict=False):
            centroid.copy_(torch.from_numpy(level_KM))

    def arrange(self) -> None:
        """Compute which nodes lie above each document and which are siblings, if the tree has changed."""
        if self._arranged == self.version:
            return
        kept = self.learner.kept
        parents = [kept[f"parent.{level}"] for level in range(len(self.counts))]
        path_NT = above([parent_K.numpy() for parent_K in parents], kept["leaf"].numpy())
        self.path_NT, told = torch.from_numpy(path_NT), range(len(self.hierarchy))
        alive = [torch.bincount(self.path_NT[:, level], minlength=self.counts[level]) > 0 for level in told]
        self.hierarchy.arrange(parents[: len(told)], alive)
        self._arranged = self.version

    def below(self, level: int, generator: np.random.Generator) -> "Below":
        self.arrange()
        node_N = self.path_NT[:, level - 1].numpy() if level else np.zeros(len(self.path_NT), dtype=np.int64)
        return Below(node_N, self.counts[level - 1] if level else 1, generator)


def directions(vector_NM: Floats) -> Floats:
    """Scale vectors [n, m] to unit length, unless all have unit length already.

    >>> directions(np.array([[3.0, 4.0], [0.0, 1.0]], dtype=np.float32)).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 1.0]]
    """
    parts = [slice(begin, begin + CAST_ROWS) for begin in range(0, len(vector_NM), CAST_ROWS)]
    if all(np.allclose(np.linalg.norm(vector_NM[part].astype(np.float32), axis=1), 1, atol=1e-3) for part in parts):
        return vector_NM
    unit_NM = for_vectors(*vector_NM.shape)
    for part in parts:
        unit_NM[part] = normalized(vector_NM[part].astype(np.float32))
    return unit_NM


class Below:
    """Documents below each node of a level of the tree, in random order, from which near documents are drawn."""

    def __init__(self, node_N: Ints, nodes: int, generator: np.random.Generator) -> None:
        order_N = generator.permutation(len(node_N))
        self.node_N, self.order_N = node_N, order_N[np.argsort(node_N[order_N], kind="stable")]
        self.place_N = np.argsort(self.order_N)
        self.begin_K = np.searchsorted(node_N[self.order_N], np.arange(nodes + 1))

    def siblings(self, query_N: Ints, document_N: Ints, known: KnownPositives, count: int) -> Ints:
        """Draw `count` documents below each document's node that are no known answers: [n, count], -1 for none."""
        node_N = self.node_N[document_N]
        begin_N, size_N = self.begin_K[node_N], np.diff(self.begin_K)[node_N]
        step_W = np.arange(1, count + SPARE + 1)
        place_NW = (self.place_N[document_N] - begin_N)[:, None] + step_W
        row_NW = self.order_N[begin_N[:, None] + place_NW % size_N[:, None]]
        wrong_NW = (step_W < size_N[:, None]) & ~known(query_N[:, None], row_NW) & (row_NW != document_N[:, None])
        order_NS = np.argsort(~wrong_NW, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(np.where(wrong_NW, row_NW, -1), order_NS, axis=1)


class TreeBatch:
    """A term of HCE's loss: each query picks its answer among documents, and the answer's nodes among siblings."""

    def __init__(
        self,
        pairs: PairBatch,
        training_tree: TrainingTree,
        sibling_TNS: Sequence[Ints],
        hierarchy: float,
        *,
        both: bool = False,
    ) -> None:
        """Take pairs, and rows [n, s] of further negatives (-1: none). If `both`, documents also pick their queries."""
        self.pairs, self.training_tree, self.both = pairs, training_tree, both
        self.hierarchy = hierarchy
        self.sibling_TNS = [set_NS[pairs.own] for set_NS in sibling_TNS]

    @property
    def asks(self) -> list[Ask]:
        return [*self.pairs.asks, *(("document", set_NS[set_NS >= 0]) for set_NS in self.sibling_TNS)]

    def loss(self, vectors: Sequence[Tensor]) -> Tensor:
        query_NM, share_CM, *siblings = vectors
        query_QM, column_CM = self._gathered(query_NM, share_CM)
        total = query_NM.new_zeros(())
        for sibling_XM, sibling_NS in zip(siblings, self.sibling_TNS, strict=True):
            total = total + self.pairs.queries_pick(query_NM, column_CM, scores(query_NM, sibling_XM, sibling_NS))
            if self.both:
                total = total + self.pairs.documents_pick(column_CM, query_QM)
        if self.hierarchy and len(self.training_tree.hierarchy):
            path_NT = self.training_tree.path_NT[self.pairs.document_N[self.pairs.own]].to(query_NM.device)
            total = total + self.hierarchy * self.training_tree.hierarchy.loss(
                query_NM, path_NT, self.pairs.temperature
            )
        return self.pairs.weight * total / len(self.pairs.query_N)

    def _gathered(self, query_NM: Tensor, share_CM: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = ([len(share) for share in shares] for shares in (self.pairs.rows, self.pairs.columns))
        if not self.both:
            return query_NM, self.pairs.group.gather(share_CM, columns)
        sizes = [sum(pair) for pair in zip(rows, columns, strict=True)]
        gathered = self.pairs.group.gather(torch.cat([query_NM, share_CM]), sizes)
        parts = torch.split(gathered, [size for pair in zip(rows, columns, strict=True) for size in pair])
        return torch.cat(parts[0::2]), torch.cat(parts[1::2])


def scores(query_NM: Tensor, sibling_XM: Tensor, sibling_NS: Ints) -> Tensor:
    """Compute inner products [n, s] of each query with its siblings' vectors [x, m], -inf for none (row -1)."""
    present_NS = torch.from_numpy(sibling_NS >= 0).to(query_NM.device)
    row_X = present_NS.nonzero()[:, 0]
    score_NS = query_NM.new_full(present_NS.shape, -torch.inf)
    return score_NS.masked_scatter(present_NS, (query_NM[row_X] * sibling_XM).sum(dim=1))


class Hce(Contrast):
    spec: HceTraining

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        pseudo: PseudoPairs | None,
        spec: HceTraining,
        seed: int,
        measure: Measure,
    ) -> None:
        n, m = examples.document_NM.shape
        counts = spec.tree.counts(n)
        self.hierarchy = Hierarchy(counts[: spec.tree.told_apart(n)], m).to(tower.device)
        modules = {"encoder": tower.module, "hierarchy": self.hierarchy}
        descent = Descent("adafactor" if spec.form == "paper" else "adamw")
        learner = Learner(modules, (spec.encoder_lr, spec.encoder_lr), descent)
        super().__init__(tower, examples, pseudo, spec, seed, measure, learner)
        self.training_tree = TrainingTree(learner, self.hierarchy, counts, n)

    @property
    def levels(self) -> list[int]:
        """Levels below whose nodes siblings are drawn (Eq. 7): one level, or for form `paper` also all lower levels."""
        lowest = len(self.hierarchy)
        return [lowest] if self.spec.form == "single" else list(range(lowest, len(self.training_tree.counts) + 1))

    def steps(self, epoch: int) -> Iterator[Draw]:
        if not self.training_tree.version:
            self.plant()
        generator = np.random.default_rng([self.seed, epoch, 2])
        self.below = [self.training_tree.below(level, generator) for level in self.levels]
        return super().steps(epoch)

    def term(self, pairs: PairBatch) -> TreeBatch:
        spec, paper = self.spec, self.spec.form == "paper"
        siblings = [below.siblings(pairs.query_N, pairs.document_N, pairs.known, spec.siblings) for below in self.below]
        return TreeBatch(pairs, self.training_tree, siblings, 1.0 if paper else spec.hierarchy, both=paper)

    def measure(self) -> dict[str, float]:
        """Measure exact search on dev. Then build the tree if there is none, or if `tree.recluster` wants a new one."""
        before = self.learner.kept["top"]
        measures = super().measure()
        recluster, improved = self.spec.tree.recluster, self.learner.kept["top"] is not before
        if not self.training_tree.version or recluster == "every" or (recluster == "improved" and improved):
            self.plant()
        return measures

    def plant(self) -> None:
        self.training_tree.plant(self.documents(), self.spec.tree.children(len(self.examples.document_NM)), self.seed)


@torch.no_grad()
def node_router(trained: Hce) -> LearnedIvfRouter:
    """Make a learned IVF router from HCE's lowest centroids, refined by k-means. Each centroid gets a leaf."""
    centroid_LM = F.normalize(trained.hierarchy.centroids[-1].detach().cpu(), dim=1)
    vector_NM, group = trained.documents(), trained.learner.group
    (refined_LM,) = group.each(lambda _: refined(vector_NM, centroid_LM.numpy(), ROUNDS), [None])
    centroid_LM = torch.from_numpy(refined_LM)
    leaves, dimension = centroid_LM.shape
    router = LearnedIvfRouter(dimension, leaves, 0)
    router.begin(centroid_LM)
    leaf_N1, _ = place(opened(router), Encoded(vector_NM), 1, group.each)
    router.log_size_L.copy_(torch.from_numpy(np.log(np.bincount(leaf_N1[:, 0], minlength=leaves) + 0.5)))
    return router
