"""`train: {type: hce}`: the encoder learns to pick a query's answer among the answer's siblings in a document tree.

"Hierarchical Corpus Encoder: Fusing Generative Retrieval and Dense Indices", Eq. 5-8 and Algorithms 1-3.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Section, Weight
from rayhier.spec.errors import InputError
from rayhier.spec.train.common import PAIRED, InfoNce


def node_counts(documents: int, branching: int) -> list[int]:
    """Return the number of nodes of each level of a document tree between root and documents, top down.

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
    """Shape of the tree over the documents: clusters of documents, clusters of clusters, up to one root."""

    branching: Annotated[int, Field(ge=2, le=1_000_000)] | Literal["auto"] = 8
    """Mean number of children of a node, b. N documents have ⌈N/b⌉ parents, these have ⌈N/b²⌉ parents, and so on.
    `auto`: the least power of two that is not below the cube root of N, as in the paper for BEIR."""
    levels: Annotated[int, Field(ge=0, le=64)] | Literal["auto"] = "auto"
    """Number of levels below the root, M, in which the loss compares a node's centroid with its siblings' centroids.
    `auto`: all levels between root and documents."""
    recluster: Literal["never", "improved", "every"] = "never"
    """Times at which the tree is rebuilt from the trained vectors. `never`: never rebuilt. `improved`: after each
    measurement that is the best until then (the paper's Algorithm 3). `every`: after each measurement."""

    def counts(self, documents: int) -> list[int]:
        """Return the number of nodes of each level between root and documents, top down.

        >>> TreeShape(branching=32).counts(5183), TreeShape(branching=8).counts(5183)
        ([6, 162], [2, 11, 81, 648])
        """
        return node_counts(documents, self.children(documents))

    def children(self, documents: int) -> int:
        """Return the mean number of children of a node, b, for a tree over `documents` documents."""
        if self.branching != "auto":
            return self.branching
        power = 1
        while power**3 < documents:
            power *= 2
        return max(2, power)

    def told_apart(self, documents: int) -> int:
        return len(self.counts(documents)) if self.levels == "auto" else self.levels

    def check(self, documents: int) -> None:
        """Raise InputError if a tree over `documents` documents has no inner level, or fewer levels than `levels`."""
        branching, height = self.children(documents), len(self.counts(documents))
        if branching >= documents:
            raise InputError(
                f"train.tree.branching: got {branching} for {documents} documents; allowed: fewer than {documents}"
            )
        if self.levels != "auto" and self.levels > height:
            raise InputError(
                f"train.tree.levels: got {self.levels}; allowed: at most {height}, the levels of nodes between the "
                f"root and {documents} documents with branching {branching}"
            )


class HceTraining(InfoNce):
    """HCE's training by contrast with siblings in a tree: of the answer, and of the nodes above the answer."""

    type: Literal["hce"]
    generated: Annotated[str, Field(min_length=1)] | None = None
    """File of generated pairs, which are read like judged pairs (the paper's +QG). The file has UTF-8 JSON lines,
    `{"query": "…", "doc_id": "…"}`. Its path is relative to the current directory. In a corpus of passages, `doc_id`
    names a document, not a passage. `null`: none."""
    form: Literal["single", "paper"] = "single"
    """Terms of the loss. `single`: one contrast among documents and mined hard negatives, by AdamW. `paper`: Eq. 5-8, a
    contrast in both directions for each level below the `tree.levels`, by Adafactor without relative steps and scaling
    by parameter. Nothing is mined, and `hierarchy` is 1. A head starts as the base encoder, not whitened."""
    tree: TreeShape = TreeShape()
    """Shape of the tree over the documents."""
    hierarchy: Weight = 0.1
    """Weight of the cross-entropy by which a query picks a node among its siblings, at each level of `tree.levels`."""
    siblings: Annotated[int, Field(ge=0, le=100)] = 4
    """Number of further negatives of a query, drawn below the parent node of its answer, without known answers."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.objective == "documents":
            self.refuse("generated", where=PAIRED)
        if self.form == "paper":
            self.refuse("hierarchy", where="only if form is single")
            if self.objective != "documents" and self.hard_negatives.source != "none":
                raise ValueError("hard_negatives: {source: none} if form is paper, which mines nothing")
        if self.form == "single" and self.tree.levels == 0:
            self.refuse("hierarchy", where="only if tree.levels is above 0")
        return self

    @property
    def generation(self) -> str | None:
        return self.generated

    @property
    def whitens(self) -> bool:
        return self.form == "single"

    @property
    def sees_tree(self) -> bool:
        """Return True if the loss depends on the tree. Without levels, siblings are drawn from all documents."""
        return self.form == "paper" or (self.tree.levels != 0 and (self.hierarchy > 0 or self.siblings > 0))

    def leaves(self, documents: int) -> int:
        """Return the number of leaves: nodes of the lowest level in the loss, or 1 if `tree.levels` is 0."""
        return [1, *self.tree.counts(documents)][self.tree.told_apart(documents)]

    def check_documents(self, documents: int) -> None:
        self.tree.check(documents)
