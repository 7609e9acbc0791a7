"""`cross_encoder:` the model that reads a query and a document together, and `scores:` pairs to score before searches.

A cross-encoder is slow and accurate. Factors (a vector and a bias for each document) quickly predict the scores that a
cross-encoder would compute.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Section
from rayhier.spec.encoder import Precision

Head = Literal["cls", "emb"]
Count = Annotated[int, Field(ge=1, le=100_000)]

WRONG, OF_BASE, OF_BM25 = 7, 4, 1
"""Number of wrong documents in a training group, drawn from the base encoder's best documents, and from BM25's best
documents. The remaining wrong documents are drawn from all documents."""
MOST_PAIRS = 100_000
"""Largest number of judged pairs of each corpus in an epoch, drawn by seed and epoch."""


class CrossEncoderTraining(Section):
    """Training by groups of an answer and wrong documents: cross-entropy, plus divergence from a cheap teacher."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of passes over the judged pairs."""


class CrossEncoderSpec(Section):
    """A cross-encoder, stored as transformers stores sequence classifiers, and its settings."""

    model: Annotated[str, Field(min_length=1)]
    """A folder, `package:NAME` (a folder in an installed package), or a Hugging Face hub id `ORG/NAME@REVISION`."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Expected SHA-256 of `model.safetensors`, or of the digests of several weight files in order of name. A model with
    another digest is refused. `null`: any."""
    head: Head = "cls"
    """Part that makes the score. `cls`: the single output of a classifier. `emb`: scaled cosine of the mean vectors of
    the query's and the document's tokens, which are read together."""
    max_length: Annotated[int, Field(ge=8, le=8192)] = 256
    """Largest number of tokens of a pair. The longer of its two texts is cut."""
    precision: Precision = "auto"
    """Number format of the computation. `auto`: the fastest whose scores correlate with float32's by at least 0.999."""
    beside: Annotated[float, Field(ge=0, le=1000)] | Literal["auto"] = "auto"
    """Weight of the search's own score, which is added to the cross-encoder's score. `auto`: stage calibrate chooses it
    by dev queries for the trained model. Without dev queries, `auto` is 0."""
    train: CrossEncoderTraining | None = None
    """Training of the cross-encoder. `null`: the model is used unchanged."""


CHOSEN_DEPTH = 50
"""Largest number of documents that the cross-encoder reads for each dev query that chooses a weight."""


FactorKind = Literal["bias", "transductive", "inductive"]
LARGE = 10**7
"""Number of scores from which the paper of AXN trains factors for fewer epochs, at a lower learning rate."""


def factor_passes(kind: FactorKind, scores: int) -> int:
    """Return the number of epochs in which factors are learned from a number of scores, as in the paper of AXN."""
    large = scores >= LARGE
    return (10 if large else 20) if kind == "inductive" else (4 if large else 10)


class ScoresSpec(Section):
    """Pairs that the cross-encoder scores ahead of searches: the pairs that the base encoder scores best."""

    judged: Annotated[int, Field(ge=0, le=10_000_000)] = 50
    """Number of judged train queries in these pairs, chosen by a hash of their ids. Training leaves these out."""
    spans: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Number of spans (64 words of a document) that are queries of these pairs, chosen by a hash of document ids."""
    per: Literal["query", "item"] = "query"
    """Meaning of `count`. `query`: documents for each query. `item`: queries for each document."""
    count: Count | Literal["all"] = 100
    """Number of documents for each query, or of queries for each document (`per`). `all`: all pairs are scored."""

    factors: FactorKind | None = None
    """Factors to learn from the scores for each document, to predict scores in a search. `bias`: the mean difference of
    the document's scores from a line fitted to the base encoder's scores. `transductive`: a bias, and a free vector for
    each scored document. `inductive`: a bias, and a learned map of the index's vectors, which also serves documents
    that you add later. `null`: nothing is learned."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.queries:
            raise ValueError("judged or spans above 0, as both count queries")
        if self.count == "all":
            self.refuse("per", where="only if count is a number")
        elif self.per == "item" and self.count > self.queries:
            raise ValueError(f"count of at most the number of queries ({self.queries}), as per is item")
        return self

    @property
    def queries(self) -> int:
        return self.judged + self.spans

    def pairs(self, documents: int) -> int:
        if self.count == "all":
            return self.queries * documents
        return self.count * documents if self.per == "item" else self.queries * min(self.count, documents)
