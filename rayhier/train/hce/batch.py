"""The loss of a batch of pairs against a tree of documents ("Hierarchical Corpus Encoder", Eq. 5-8)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rayhier.arrays import Ints
from rayhier.train.caching import Ask
from rayhier.train.contrast.batch import PairBatch
from rayhier.train.hce.training_tree import TrainingTree


class TreeBatch:
    """A term of HCE's loss: each query picks its answer among documents, and the answer's nodes among their siblings.

    Documents drawn near an answer are negatives of its query alone, so the query's worker encodes them.
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
        """Take pairs, and sets of further negatives for each pair, rows [n, s] of documents near the answer (-1: none).

        The contrastive loss is computed with each set and summed. `hierarchy` weighs the cross-entropy among siblings
        of nodes, `weight` the sum of all; with `both`, documents pick their queries too.
        """
        self.pairs, self.training_tree, self.both = pairs, training_tree, both
        self.hierarchy, self.weight = hierarchy, weight
        self.sibling_TNS = [set_NS[pairs.own] for set_NS in sibling_TNS]

    @property
    def asks(self) -> list[Ask]:
        """The rows that this worker must encode: queries, its share of the documents, and further negatives."""
        return [*self.pairs.asks, *(("document", set_NS[set_NS >= 0]) for set_NS in self.sibling_TNS)]

    def loss(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute this worker's share of the weighted mean loss over the batch's pairs."""
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
        return self.weight * total / len(self.pairs.query_N)

    def _gathered(self, query_NM: Tensor, share_CM: Tensor) -> tuple[Tensor, Tensor]:
        """Gather queries and documents of all workers in one exchange, as every worker's backward pass has one."""
        rows, columns = ([len(share) for share in shares] for shares in (self.pairs.rows, self.pairs.columns))
        if not self.both:
            return query_NM, self.pairs.group.gather(share_CM, columns)
        sizes = [sum(pair) for pair in zip(rows, columns, strict=True)]
        gathered = self.pairs.group.gather(torch.cat([query_NM, share_CM]), sizes)
        parts = torch.split(gathered, [size for pair in zip(rows, columns, strict=True) for size in pair])
        return torch.cat(parts[0::2]), torch.cat(parts[1::2])


def scores(query_NM: Tensor, sibling_XM: Tensor, sibling_NS: Ints) -> Tensor:
    """Compute inner products [n, s] of each query with its own negatives; -inf where it has fewer.

    `sibling_NS` holds the negatives' rows, -1 for none; `sibling_XM` the vectors of all that are not -1, in order.
    """
    present_NS = torch.from_numpy(sibling_NS >= 0).to(query_NM.device)
    row_X = present_NS.nonzero()[:, 0]
    score_NS = query_NM.new_full(present_NS.shape, -torch.inf)
    return score_NS.masked_scatter(present_NS, (query_NM[row_X] * sibling_XM).sum(dim=1))
