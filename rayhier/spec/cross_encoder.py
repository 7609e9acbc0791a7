"""`cross_encoder:` the model that reads a query and a document together; `scores:` and `factors:` computed with it.

A cross-encoder is slow and accurate: each pair is a forward pass. `scores` are the scores of pairs that it reads ahead
of any search; `factors` are a vector and a bias for every document, learned from these scores.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from rayhier.spec.base import Rate, Section, Weight
from rayhier.spec.encoder import Device, Precision

Head = Literal["cls", "emb"]
Count = Annotated[int, Field(ge=1, le=100_000)]


class Groups(Section):
    """Wrong documents that form a training group with a query and its answer: how many, and drawn from where."""

    base: Annotated[int, Field(ge=0, le=100)] = 4
    """Number of a group's wrong documents drawn from the base encoder's best documents."""
    bm25: Annotated[int, Field(ge=0, le=100)] = 1
    """Number of a group's wrong documents drawn from BM25's best documents."""
    others: Annotated[int, Field(ge=0, le=100)] = 2
    """Number of a group's wrong documents drawn as `drawn` says."""
    drawn: Literal["random", "leaf"] = "random"
    """Source of the `others`. `random`: all documents. `leaf`: documents of the k-means leaf that the answer lies
    in."""
    top: Annotated[int, Field(ge=1, le=1000)] = 30
    """Number of best documents, by the base encoder or by BM25, from which wrong documents are drawn."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.wrong == 0:
            raise ValueError("at least one wrong document: base, bm25 or others above 0")
        if max(self.base, self.bm25) > self.top:
            raise ValueError(f"base and bm25 at most top: {max(self.base, self.bm25)} are drawn from {self.top}")
        return self

    @property
    def wrong(self) -> int:
        """Number of wrong documents in a group."""
        return self.base + self.bm25 + self.others


class CrossEncoderTraining(Section):
    """Training by groups of an answer and wrong documents: cross-entropy, plus divergence from a cheap teacher."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of passes over the judged pairs."""
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 16
    """Number of groups in a training step, of all workers together."""
    lr: Rate = 1e-4
    """Highest learning rate of the optimizer: it rises in the first tenth of the steps, then falls to zero."""
    groups: Groups = Groups()
    teacher: Weight = 0.5
    """Weight of the Kullback-Leibler divergence from the teacher, softmax(20 (base + 0.3 BM25 / max BM25)) over a
    group, where `base` is the base encoder's score."""
    pairs: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Workdirs of other runs whose judged train pairs are trained on too. Their content enters the fingerprint, their
    path does not."""
    most_pairs: Annotated[int, Field(ge=1)] = 100_000
    """Most judged pairs of each corpus in an epoch, drawn by seed and epoch."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of all random draws, and of the weights of a new head."""

    @field_validator("pairs")
    @classmethod
    def _distinct(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(values)) < len(values):
            raise ValueError("each workdir once")
        return values


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
    layers: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Number of the transformer's first layers that are kept; null: all. Half of the layers read twice as fast."""
    max_length: Annotated[int, Field(ge=8, le=8192)] = 256
    """Most tokens of a pair; the longer of its two texts is cut."""
    precision: Precision = "auto"
    """Number format of the computation; `auto`: the fastest whose scores correlate with float32's by 0.999 or more."""
    device: Device = "auto"
    """Device of the model; `auto`: CUDA in a process that has such a device, else the CPU."""
    batch_size: Annotated[int, Field(ge=1, le=65536)] = 64
    """Most pairs in one forward pass."""
    beside: Annotated[float, Field(ge=0, le=1000)] | Literal["auto"] = "auto"
    """Weight of the search's own score, which is added to the cross-encoder's score. `auto`: chosen for the trained
    model, in the stage calibrate, by dev queries; 0 without dev."""
    train: CrossEncoderTraining | None = None
    """Training of the cross-encoder; null: the model is used as it is."""


CHOSEN_DEPTH = 50
"""Most documents that the cross-encoder reads for a dev query, where dev queries choose the weight beside it."""


class FactorsSpec(Section):
    """Factors, learned from the cross-encoder's scores: a vector and a bias for each document, to predict scores."""

    vectors: Literal["none", "transductive", "inductive"] = "transductive"
    """Kind of the vectors. `transductive`: a free vector for each scored document. `inductive`: a learned map of the
    index's vectors, which documents added later have too. `none`: only the bias; searches use the index's vectors."""
    bias: bool = True
    """`true`: each document has a bias: the mean difference of its scores from a line fitted to the base encoder's
    scores. `false`: none has."""
    epochs: Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] = "auto"
    """Number of passes over the scores. `auto`: for inductive vectors 20, from 10⁷ scores 10; for transductive 10, from
    10⁷ scores 4."""
    lr: Rate | Literal["auto"] = "auto"
    """Learning rate of the optimizer. `auto`: 5e-3, from 10⁷ scores 1e-3."""
    batch_size: Annotated[int, Field(ge=1, le=10_000_000)] = 256
    """Number of scores in a training step."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.vectors == "none":
            if not self.bias:
                raise ValueError("vectors that are not none, or bias true: else nothing is learned")
            self.refuse("epochs", "lr", "batch_size", where="only where vectors is not none")
        return self

    def passes(self, scores: int) -> int:
        """Return the number of epochs for a number of scores; `auto` follows the paper of AXN."""
        if self.epochs != "auto":
            return self.epochs
        large = scores >= LARGE
        return (10 if large else 20) if self.vectors == "inductive" else (4 if large else 10)

    def rate(self, scores: int) -> float:
        """Return the learning rate for a number of scores; `auto` follows the paper of AXN."""
        return (1e-3 if scores >= LARGE else 5e-3) if self.lr == "auto" else self.lr


LARGE = 10**7
"""Number of scores from which the paper of AXN trains for fewer epochs, at a lower learning rate."""


class ScoresSpec(Section):
    """Pairs of a query and a document that the cross-encoder scores ahead of searches, as a sparse matrix."""

    judged: Annotated[int, Field(ge=0, le=10_000_000)] = 50
    """Number of judged train queries among the queries, chosen by a hash of their ids; the cross-encoder does not train
    on these queries."""
    titles: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Number of titles of documents among the queries, chosen by a hash of the documents' ids."""
    spans: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Number of spans (runs of 64 words of a document) among the queries, chosen by a hash of the documents' ids."""
    per: Literal["query", "item"] = "query"
    """Meaning of `count`. `query`: every query is scored with `count` documents. `item`: every document with `count`
    queries."""
    count: Count | Literal["all"] = 100
    """Number of documents for each query, or of queries for each document, as `per` says; `all`: every pair is
    scored."""
    draw: Literal["base", "random"] = "base"
    """Choice of the pairs. `base`: the best by the base encoder's score. `random`: random pairs."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.queries:
            raise ValueError("judged, titles or spans above 0: queries to score documents for")
        if self.count == "all":
            self.refuse("draw", "per", where="only where count is a number")
        elif self.per == "item" and self.count > self.queries:
            raise ValueError(f"count at most the number of queries ({self.queries}) with per item")
        return self

    @property
    def queries(self) -> int:
        """Number of queries that are scored with documents."""
        return self.judged + self.titles + self.spans

    def pairs(self, documents: int) -> int:
        """Return the number of pairs of a query and a document to score, for a corpus of `documents` documents."""
        if self.count == "all":
            return self.queries * documents
        return self.count * documents if self.per == "item" else self.queries * min(self.count, documents)
