"""The loss of one batch of pairs against a document tree ("Hierarchical Corpus Encoder", Eq. 5-8)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rayhier.arrays import Ints
from rayhier.train.caching import Ask
from rayhier.train.contrast.batch import PairBatch
from rayhier.train.hce.training_tree import TrainingTree


class TreeBatch:
    """Pairs whose queries pick their document among others, and each node above it among the node's siblings.

    The siblings drawn for an answer are negatives of its query alone, so the query's worker encodes them.
    """

    def __init__(
        self,
        pairs: PairBatch,
        training_tree: TrainingTree,
        sibling_TNS: Sequence[Ints],
        hierarchy: float,
        weight: float = 1.0,
        *,
        both: bool = False,
    ) -> None:
        """Add siblings of the answers: each set [n, s], -1 where there are fewer, is a term of the contrast.

        `hierarchy` weighs the cross-entropy among siblings of nodes, `weight` all of the loss; with `both`, documents
        pick their queries too.
        """
        self.pairs, self.training_tree, self.both = pairs, training_tree, both
        self.hierarchy, self.weight = hierarchy, weight
        self.sibling_TNS = [own_NS[pairs.own] for own_NS in sibling_TNS]

    @property
    def asks(self) -> list[Ask]:
        """Rows that this worker encodes: queries, its share of the documents, and siblings."""
        return [*self.pairs.asks, *(("document", own_NS[own_NS >= 0]) for own_NS in self.sibling_TNS)]

    def loss(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute the weighted mean of the loss over the batch's pairs."""
        query_NM, own_CM, *siblings = vectors
        query_QM, column_CM = self._gathered(query_NM, own_CM)
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
        return self.weight * total / len(self.pairs.query_N)

    def _gathered(self, query_NM: Tensor, own_CM: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and columns of all workers, in one exchange, so that every worker's backward pass has the same."""
        rows, columns = ([len(share) for share in shares] for shares in (self.pairs.rows, self.pairs.columns))
        if not self.both:
            return query_NM, self.pairs.group.gather(own_CM, columns)
        sizes = [sum(pair) for pair in zip(rows, columns, strict=True)]
        every = self.pairs.group.gather(torch.cat([query_NM, own_CM]), sizes)
        parts = torch.split(every, [size for pair in zip(rows, columns, strict=True) for size in pair])
        return torch.cat(parts[0::2]), torch.cat(parts[1::2])


def scores(query_NM: Tensor, sibling_XM: Tensor, sibling_NS: Ints) -> Tensor:
    """Compute inner products [n, s] of queries [n, m] and siblings, numbered -1 (then -inf) or in order of [x, m]."""
    there_NS = torch.from_numpy(sibling_NS >= 0).to(query_NM.device)
    row_X = there_NS.nonzero()[:, 0]
    found_NS = query_NM.new_full(there_NS.shape, -torch.inf)
    return found_NS.masked_scatter(there_NS, (query_NM[row_X] * sibling_XM).sum(dim=1))
