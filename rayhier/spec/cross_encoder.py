"""`cross_encoder:` the model that reads a query and a document together, and `scores:` that it computes ahead.

A cross-encoder is slow and accurate: each pair is a forward pass. Factors are a vector and a bias for every document,
learned from the scores of pairs.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Section
from rayhier.spec.encoder import Precision

Head = Literal["cls", "emb"]
Count = Annotated[int, Field(ge=1, le=100_000)]

WRONG, OF_BASE, OF_BM25 = 7, 4, 1
"""WRONG: number of wrong documents in a training group. OF_BASE of these are drawn from the base encoder's best, and
OF_BM25 from BM25's best. The others are drawn from all documents."""
MOST_PAIRS = 100_000
"""Most judged pairs of each corpus in an epoch, drawn by seed and epoch."""


class CrossEncoderTraining(Section):
    """Training by groups of an answer and wrong documents: cross-entropy, plus divergence from a cheap teacher."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of passes over the judged pairs."""


class CrossEncoderSpec(Section):
    """A cross-encoder, stored as transformers stores sequence classifiers, and its settings."""

    model: Annotated[str, Field(min_length=1)]
    """A folder, `package:NAME` for the folder inside an installed package, or a Hugging Face hub id `ORG/NAME`
    (`@REVISION`)."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Expected SHA-256 of `model.safetensors` (where weights are in several files: of their digests in order of name);
    a model with another one is refused. null: any."""
    head: Head = "cls"
    """Part that makes the score. `cls`: the single output of a classifier. `emb`: scaled cosine of two mean vectors, of
    the query's and the document's tokens, after both are read together."""
    max_length: Annotated[int, Field(ge=8, le=8192)] = 256
    """Most tokens of a pair. The longer of its two texts is cut."""
    precision: Precision = "auto"
    """Number format of the computation; `auto`: the fastest whose scores correlate with float32's by 0.999 or more."""
    beside: Annotated[float, Field(ge=0, le=1000)] | Literal["auto"] = "auto"
    """Weight of the search's own score, which is added to the cross-encoder's score. `auto`: chosen for the trained
    model, in the stage calibrate, by dev queries; 0 without dev."""
    train: CrossEncoderTraining | None = None
    """Training of the cross-encoder. null: the model is used as it is."""


CHOSEN_DEPTH = 50
"""Most documents that the cross-encoder reads for a dev query, where dev queries choose the weight beside it."""


FactorKind = Literal["bias", "transductive", "inductive"]
LARGE = 10**7
"""Number of scores from which the paper of AXN trains factors for fewer epochs, at a lower learning rate."""


def factor_passes(kind: FactorKind, scores: int) -> int:
    """Return the number of epochs in which factors are learned from a number of scores, as in the paper of AXN."""
    large = scores >= LARGE
    return (10 if large else 20) if kind == "inductive" else (4 if large else 10)


class ScoresSpec(Section):
    """Pairs that the cross-encoder scores ahead of searches: the best by the base encoder's score, a sparse matrix."""

    judged: Annotated[int, Field(ge=0, le=10_000_000)] = 50
    """Number of judged train queries among the queries, chosen by a hash of their ids. The cross-encoder does not train
    on these queries."""
    spans: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Number of spans (runs of 64 words of a document) among the queries, chosen by a hash of the documents' ids."""
    per: Literal["query", "item"] = "query"
    """Meaning of `count`. `query`: every query is scored with `count` documents. `item`: every document with `count`
    queries."""
    count: Count | Literal["all"] = 100
    """Number of documents for each query, or of queries for each document, as `per` says; `all`: every pair is
    scored."""

    factors: FactorKind | None = None
    """Factors to learn from the scores for each document, to predict scores in a search. `bias`: the mean difference of
    the document's scores from a line fitted to the base encoder's scores. `transductive`: a bias, and a free vector for
    each scored document. `inductive`: a bias, and a learned map of the index's vectors, which documents added later
    have too. null: nothing is learned."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.queries:
            raise ValueError("judged or spans above 0: queries to score documents for")
        if self.count == "all":
            self.refuse("per", where="only where count is a number")
        elif self.per == "item" and self.count > self.queries:
            raise ValueError(f"count at most the number of queries ({self.queries}) with per item")
        return self

    @property
    def queries(self) -> int:
        """Number of queries that are scored with documents."""
        return self.judged + self.spans

    def pairs(self, documents: int) -> int:
        """Return the number of pairs of a query and a document to score, for a corpus of `documents` documents."""
        if self.count == "all":
            return self.queries * documents
        return self.count * documents if self.per == "item" else self.queries * min(self.count, documents)
