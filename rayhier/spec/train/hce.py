"""`train: {type: hce}`: the encoder learns to pick a query's answer among its siblings in a tree over the documents.

"Hierarchical Corpus Encoder: Fusing Generative Retrieval and Dense Indices", Eq. 5-8 and Algorithms 1-3.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Section, Weight
from rayhier.spec.errors import InputError
from rayhier.spec.train.common import InfoNce
from rayhier.spec.train.generated import GeneratedSpec
from rayhier.spec.train.pseudo_queries import PseudoQueries


def node_counts(documents: int, branching: int) -> list[int]:
    """Return the nodes of levels 1 to L - 1, top down, without the root and the documents.

    ValueError for less than one document, or a branching below 2.

    >>> node_counts(5183, 32)
    [6, 162]
    """
    if documents < 1:
        raise ValueError(f"documents: got {documents}; allowed: 1 or more")
    if branching < 2:
        raise ValueError(f"branching: got {branching}; allowed: 2 or more")
    counts = []
    while (documents := -(-documents // branching)) > 1:
        counts.append(documents)
    return counts[::-1]


class TreeShape(Section):
    """The tree over the documents: clusters of documents, clusters of these, up to one root."""

    branching: Annotated[int, Field(ge=2, le=1_000_000)] | Literal["auto"] = 8
    """Mean children of a node, b: N documents have ⌈N/b⌉ parents, these ⌈N/b²⌉, and so on. `auto`: the power of two
    from the cube root of N on, as the paper takes it for BEIR."""
    levels: Annotated[int, Field(ge=0, le=64)] | Literal["auto"] = "auto"
    """Levels below the root whose nodes the loss tells apart by their centroids, M; fewer than the tree has. `auto`:
    all levels of nodes."""
    recluster: Literal["never", "improved", "every"] = "never"
    """When the tree is grown anew from the trained vectors. `improved`: after each measurement that is the best so far
    (Algorithm 3). `every`: after each measurement."""

    def counts(self, documents: int) -> list[int]:
        """Nodes of each level that has any, top down, without root and documents.

        >>> TreeShape(branching=32).counts(5183), TreeShape(branching=8).counts(5183)
        ([6, 162], [2, 11, 81, 648])
        """
        return node_counts(documents, self.children(documents))

    def children(self, documents: int) -> int:
        """Mean children of a node, b, for a number of documents."""
        if self.branching != "auto":
            return self.branching
        power = 1
        while power**3 < documents:
            power *= 2
        return max(2, power)

    def told_apart(self, documents: int) -> int:
        """Return M, the number of levels with centroids in the loss, for a number of documents."""
        return len(self.counts(documents)) if self.levels == "auto" else self.levels

    def check(self, documents: int) -> None:
        """Raise InputError where the tree of `documents` documents has no level of nodes, or fewer than `levels`."""
        branching, height = self.children(documents), len(self.counts(documents))
        if branching >= documents:
            raise InputError(
                f"train.tree.branching: got {branching} for {documents} documents; allowed: fewer than there are "
                "documents"
            )
        if self.levels != "auto" and self.levels > height:
            raise InputError(
                f"train.tree.levels: got {self.levels}; allowed: at most {height}, the levels of nodes between the "
                f"root and {documents} documents with branching {branching}"
            )


class HceTraining(InfoNce):
    """Contrast with siblings as negatives: of the answer, and of the nodes above it in a document tree."""

    type: Literal["hce"]
    objective: Literal["auto", "supervised", "documents", "joint"] = "auto"  # type: ignore[assignment]
    """Source of the pairs. `supervised`: train judgements (the paper's S), and generated pairs. `documents`:
    pseudo-queries (U). `joint`: both, S + α U (J). `auto`: joint where train judgements or generated pairs exist, else
    documents."""
    generated: GeneratedSpec | None = None
    """Pairs that a model has written for documents, trained on like judged ones (the paper's +QG); null: none."""
    form: Literal["single", "paper"] = "single"
    """Terms of the loss. `single`: one contrast of documents, which mined negatives may join. `paper`: Eq. 5-8, a
    contrast in both directions for every level below those told apart by centroids, nothing mined, `hierarchy` 1."""
    tree: TreeShape = TreeShape()
    """The tree over the documents."""
    hierarchy: Weight = 0.1
    """Weight of the cross-entropy among a node's siblings, at each level that is told apart by centroids."""
    siblings: Annotated[int, Field(ge=0, le=100)] = 4
    """Documents drawn from below the answer's parent as further negatives of its query alone; known answers never."""
    directions: Literal["query", "both"] = "query"
    """`query`: each query picks its document. `both`: each document picks its query too."""
    pseudo_weight: Weight = 0.5
    """Weight of pseudo-queries relative to judged pairs, α; only with `joint`."""
    pseudo_queries: PseudoQueries = PseudoQueries()
    """Texts that stand for queries where documents teach."""
    start: Literal["auto", "whitened", "base"] = "auto"
    """Where training begins. `whitened`: at a head in closed form under which documents
    differ from their own pseudo-queries alike in all directions (ours). `base`: at the base encoder. `auto`: whitened
    where a head trains, there are pseudo-queries, and dev does not measure clearly worse."""
    optimizer: Literal["adamw", "adafactor"] = "adamw"
    """`adamw`: weight decay 0.01, torch's default. `adafactor`: the paper's, with neither relative steps nor scaling by
    parameter."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Measurements without gain after which training stops; null: it runs to its last epoch."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.form == "paper":
            self.refuse("hierarchy", "directions", where="only where form is single")
            if self.objective != "documents" and self.hard_negatives.source != "none":
                raise ValueError("hard_negatives: {source: none} where form is paper, which mines nothing")
        if self.form == "single" and self.tree.levels == 0:
            self.refuse("hierarchy", where="only where tree.levels is above 0")
        if self.objective == "documents":
            paired = ("generated", "pseudo_weight", "hard_negatives")
            self.refuse(*paired, where="only where objective is not documents: they belong to pairs of its queries")
        if self.objective == "supervised":
            unused = ("pseudo_weight", "pseudo_queries")
            self.refuse(*unused, where="only where objective is joint or documents")
            if self.start == "whitened":
                raise ValueError("start base or auto where objective is supervised, which has no pseudo-queries")
        return self

    def whitens(self, spans: int) -> bool:
        """Return True if a head starts whitened, given the number of pseudo-queries."""
        return self.start == "whitened" or (self.start == "auto" and spans > 0)

    @property
    def sees_tree(self) -> bool:
        """Return True if the loss depends on the tree; without levels, siblings come from all documents."""
        return self.form == "paper" or (self.tree.levels != 0 and (self.hierarchy > 0 or self.siblings > 0))

    @property
    def routes(self) -> bool:
        """Return False: the router learns after the encoder."""
        return False

    @property
    def needs_judgements(self) -> bool:
        """Return False: without train judgements, pseudo-queries of documents teach."""
        return False

    @property
    def draws(self) -> PseudoQueries | None:
        """Pseudo-queries that the embed step draws and encodes, for training or dev; None where pairs alone teach."""
        return None if self.objective == "supervised" else self.pseudo_queries

    @property
    def does_without_draws(self) -> bool:
        """Return True if training by pairs goes on where no document has a pseudo-query."""
        return self.objective == "auto" and self.start != "whitened"

    @property
    def generation(self) -> GeneratedSpec | None:
        """Generated pairs to train on in addition to judged pairs; None: none."""
        return self.generated

    def phases(self, pairs: int, documents: int) -> dict[str, int]:
        """Phases of training, name -> epochs, for pairs, or without any for documents alone."""
        return {"encoder": self.passes(pairs or documents)}

    def leaves(self, documents: int) -> int:
        """Nodes of the lowest level that is told apart by centroids, for a number of documents; 1 without any."""
        kept = min(documents, self.most_documents)
        return [1, *self.tree.counts(kept)][self.tree.told_apart(kept)]

    def check_documents(self, documents: int) -> None:
        """Raise InputError where the tree does not fit this number of documents."""
        self.tree.check(min(documents, self.most_documents))
