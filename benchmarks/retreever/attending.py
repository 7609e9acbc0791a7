"""A tree, an MRL adapter and softmaxes that all attend to tokens, trained alike: what of attention is the tree's.

Each has the attention of a tree's splits: learned embeddings that attend to a text's tokens, from the same random
start, and one output for each. They differ in what they make of the outputs. Shapes: N texts, T tokens, M embedding
size, W outputs, K numbers of a size.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.retreever.attention import Attended
from benchmarks.retreever.bench import Row, Sizes, resolved, training
from benchmarks.training import train
from rayhier.arrays import Values
from rayhier.model.retreever import DEEPEST, AttentionSplits, NodeTree, Representations, TreeLevels, represent
from rayhier.spec.router import RetreeverRouting
from rayhier.spec.train.retreever import Comparison
from rayhier.train.retreever.dev import MOST_NUMBERS, SizesMeasure
from rayhier.train.retreever.grow import READ, SETTLED, with_documents
from rayhier.train.retreever.matching import Matching, from_tower, size_all

GROUPS = 8
"""Texts of a batch are read in so many groups of like length, each padded to its own longest text."""
SEARCHED = 5_000
"""Documents that dev queries search: each has to be read anew for every measure."""


class Grouped(AttentionSplits):
    """Splits by attention that compute few scores of padding: texts of like length are read together."""

    def forward(self, token_NTM: Tensor, mask_NT: Tensor) -> Tensor:
        """Compute scores [n, splits] as splits by attention do, but for rounding."""
        count_N = mask_NT.sum(dim=1)
        order_N = count_N.argsort()
        parts = [part for part in order_N.chunk(GROUPS) if len(part)]
        scores = [
            super(Grouped, self).forward(*(tensor[part, : int(count_N[part].max())] for tensor in (token_NTM, mask_NT)))
            for part in parts
        ]
        return torch.cat(scores)[order_N.argsort()]


class Outputs(Representations):
    """Outputs of a tree's attention without the tree: a text's first outputs represent it coarsely."""

    similarity: Comparison = "cosine"

    def __init__(self, dimension: int, depth: int) -> None:
        """Make as many outputs as a tree of `depth` levels has splits, by one linear map each."""
        super().__init__()
        self.attention = Grouped(dimension, depth, "linear")

    @property
    def width(self) -> int:
        """Number of outputs."""
        return len(self.attention.planes.weight)

    @property
    def counts(self) -> Sequence[int]:
        """Numbers of a text: 2, 4, … and all outputs, as many sizes as the tree has."""
        return [*(2**level for level in range(1, self.attention.depth)), self.width]

    def scores(self, *read: Tensor) -> Tensor:
        """Compute outputs [n, w] of texts from tokens' vectors [n, t, m] and a mask [n, t], 1 on tokens."""
        return torch.as_tensor(self.attention(*read))

    @torch.no_grad()
    def start(self, token_NTM: Tensor, mask_NT: Tensor) -> None:
        """Give all outputs one deviation over some texts."""
        planes = self.attention.planes
        factor_W = DEEPEST / self.attention(token_NTM, mask_NT).std(dim=0)
        planes.bias.mul_(factor_W)
        planes.weight.mul_(factor_W[:, None])


class AttendingAdapter(Outputs):
    """An MRL adapter that attends to tokens: the first outputs, at unit length, are a text's vector of each size."""

    def sizes(self, score_NW: Tensor) -> list[Tensor]:
        """Cut outputs [n, w] to unit vectors [n, k] of each size, smallest first."""
        return [F.normalize(score_NW[:, :count], dim=1) for count in self.counts]


class AttendingSoftmax(Outputs):
    """Softmaxes that attend to tokens: at each size one over the first outputs, compared as a tree's levels are."""

    def __init__(self, dimension: int, depth: int) -> None:
        super().__init__(dimension, depth)
        self.offsets = nn.ParameterList([torch.zeros(count) for count in self.counts])

    def sizes(self, score_NW: Tensor) -> list[Tensor]:
        """Compute vectors [n, k] of each size from outputs [n, w], smallest first."""
        return [
            represent(F.softmax(score_NW[:, : len(offset_K)], dim=1), self.similarity, cast("Tensor", offset_K))
            for offset_K in self.offsets
        ]

    @torch.no_grad()
    def start(self, token_NTM: Tensor, mask_NT: Tensor) -> None:
        """Give all outputs one deviation and mean 0 over some texts; offsets are what the means said, as a tree's."""
        super().start(token_NTM, mask_NT)
        mean_W = self.attention(token_NTM, mask_NT).mean(dim=0)
        self.attention.planes.bias.sub_(mean_W)
        for offset_K in self.offsets:
            count = len(offset_K)
            offset_K.copy_(F.softmax(mean_W[:count], dim=0) * count - 1)


class Attending:
    """Rows that attend to the same tokens, trained alike with one seed; kept below the folder of the collection."""

    def __init__(self, tokens: Attended) -> None:
        self.tokens, self.setting, collection = tokens, tokens.setting, tokens.bench.collection
        answers = collection.examples.answers(collection.documents.results)
        self.measure = SizesMeasure(self.setting.dev, collection.documents, answers, MOST_NUMBERS // SEARCHED)

    def begun(self, row: Row) -> Representations:
        """Make what a row trains, at its start."""
        router = RetreeverRouting.model_validate({"type": "retreever", **row.router})
        document_NM = self.setting.examples.document_NM
        dimension, depth, seed = document_NM.shape[1], router.depth, self.setting.seed
        rows = np.random.default_rng(seed).permutation(len(document_NM))[:SETTLED]
        read = self.tokens.read("document", rows)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if row.kind == "tree":
                splits = Grouped(dimension, depth, router.aggregation)
                tree = TreeLevels(NodeTree(splits), "cosine")
                tree.begin(splits.scale(*read))
                return tree
            made = (AttendingSoftmax if row.kind == "no tree" else AttendingAdapter)(dimension, depth)
        made.start(*read)
        return made

    def trained(self, row: Row) -> Representations:
        """The trained representations of a row."""
        spec, setting, made = training(row), self.setting, self.begun(row)
        examples, asking_too = with_documents(setting.examples, setting.examples.document_NM, spec, setting.seed)
        read, vectors = asking_too(self.tokens.read), asking_too(from_tower(setting.tower))
        phase = Matching(
            made, setting.tower, examples, spec, setting.seed, self.measure, read=read, vectors=vectors, at_once=READ
        )
        train(phase, setting.path(*self.settings(row)))
        return made.eval()

    def settings(self, row: Row) -> list[object]:
        """All that tells what a row is from what others are."""
        return ["attending", row.kind, row.router, resolved(training(row), "attention"), SEARCHED]

    def values(self, row: Row) -> dict[int, dict[str, Values]]:
        """Each measure of every query at each size, size -> measure -> [1, q]; made now or read from before."""
        bench = self.tokens.bench

        def make() -> Sizes:
            made, query_Q = self.trained(row), self.tokens.asked_row + np.arange(len(bench.queries))
            documents = np.arange(len(self.setting.examples.document_NM))
            with torch.no_grad():
                scores = [self.tokens.scores(made, "document", documents), self.tokens.scores(made, "dev", query_Q)]
                return bench.judged_sizes(made.similarity, (size_all(made, score_NW) for score_NW in scores))

        sizes = self.setting.kept_sizes(make, "values", bench.split, *self.settings(row))
        return {size: {name: value_Q[None] for name, value_Q in values.items()} for size, values in sizes.items()}
