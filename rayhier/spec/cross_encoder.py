"""`cross_encoder:` the model that reads a query and a document together; `scores:` and `factors:` computed with it.

A cross-encoder is slow and good: each pair is a forward pass. `scores` are pairs that are scored ahead of any search;
`factors` are learned from these scores, for every document.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from rayhier.spec.base import Rate, Section, Weight
from rayhier.spec.encoder import Device, Precision

Head = Literal["cls", "emb"]
Count = Annotated[int, Field(ge=1, le=100_000)]


class Groups(Section):
    """Numbers of wrong documents that are trained beside a query's answer, and where they are drawn from."""

    base: Annotated[int, Field(ge=0, le=100)] = 4
    """Wrong documents of a group that are among the base encoder's best."""
    bm25: Annotated[int, Field(ge=0, le=100)] = 1
    """Wrong documents of a group that are among BM25's best."""
    others: Annotated[int, Field(ge=0, le=100)] = 2
    """Further wrong documents of a group, drawn as `drawn` says."""
    drawn: Literal["random", "leaf"] = "random"
    """`random`: from all documents. `leaf`: from the k-means leaf of the answer."""
    top: Annotated[int, Field(ge=1, le=1000)] = 30
    """Number of best documents from which wrong ones are drawn."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.wrong == 0:
            raise ValueError("at least one wrong document: base, bm25 or others above 0")
        if max(self.base, self.bm25) > self.top:
            raise ValueError(f"base and bm25 at most top: {max(self.base, self.bm25)} are drawn from {self.top}")
        return self

    @property
    def wrong(self) -> int:
        """Number of wrong documents of a group."""
        return self.base + self.bm25 + self.others


class CrossEncoderTraining(Section):
    """Training by groups of an answer and wrong documents: cross-entropy, and the divergence from a cheap teacher."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    """Passes over the judged pairs."""
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 16
    """Groups of a training step, on all workers together."""
    lr: Rate = 1e-4
    """Learning rate of the optimizer: rising in the first tenth of the steps, then falling to zero."""
    groups: Groups = Groups()
    teacher: Weight = 0.5
    """Weight of the Kullback-Leibler divergence from softmax(20 (base + 0.3 BM25 / max)) over a group."""
    pairs: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Other published workdirs with judged train pairs to train on too; their content counts, not their place."""
    most_pairs: Annotated[int, Field(ge=1)] = 100_000
    """Most judged pairs of one corpus in an epoch, drawn by seed and epoch."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of all draws, and of a new head's weights."""

    @field_validator("pairs")
    @classmethod
    def _distinct(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(values)) < len(values):
            raise ValueError("each workdir once")
        return values


class CrossEncoderSpec(Section):
    """A sequence-pair model in transformers' layout, and its settings."""

    model: Annotated[str, Field(min_length=1)]
    """A folder, `package:NAME` for the folder inside an installed package, or a hub id `ORG/NAME` (`@REVISION`)."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Expected SHA-256 of `model.safetensors` (if sharded: of the shards' digests in order of name); others fail."""
    head: Head = "cls"
    """`cls`: a classifier's one output. `emb`: scaled cosine of the mean vectors of the two segments, read together."""
    layers: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Layers of the transformer that are kept, the first ones; null: all. Half of the layers read twice as fast."""
    max_length: Annotated[int, Field(ge=8, le=8192)] = 256
    """Most tokens of a pair; the longer of the two texts is cut."""
    precision: Precision = "auto"
    """Number format to compute in; `auto`: the fastest whose scores correlate with float32's by 0.999 or more."""
    device: Device = "auto"
    """Device to run on; `auto`: CUDA in a process that has such a device, else the CPU."""
    batch_size: Annotated[int, Field(ge=1, le=65536)] = 64
    """Most pairs scored at a time."""
    beside: Annotated[float, Field(ge=0, le=1000)] | Literal["auto"] = "auto"
    """Weight of the search's own score, which is added to the cross-encoder's. `auto`: chosen on dev, 0 without dev."""
    train: CrossEncoderTraining | None = None
    """Training of the cross-encoder; null: the model stays as it is."""


class FactorsSpec(Section):
    """What training on scores stores for every document: a vector, and a bias (its mean score above expectation)."""

    vectors: Literal["none", "transductive", "inductive"] = "transductive"
    """`transductive`: a free vector for each scored document. `inductive`: a map of the index's vectors, which added
    documents have too. `none`: only the bias; searches use the index's vectors."""
    bias: bool = True
    """`true`: each document has a bias, the mean residual of its scores after intercept and slope on the base score."""
    epochs: Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] = "auto"
    """Passes over the scores. `auto`: 10, or 4 for transductive and 10 for inductive from 10⁷ scores; inductive 20."""
    lr: Rate | Literal["auto"] = "auto"
    """Learning rate. `auto`: 5e-3, or 1e-3 from 10⁷ scores."""
    batch_size: Annotated[int, Field(ge=1, le=10_000_000)] = 256
    """Scores of a step."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.vectors == "none":
            if not self.bias:
                raise ValueError("vectors that are not none, or bias true: else nothing is learned")
            self.refuse("epochs", "lr", "batch_size", where="only where vectors is not none")
        return self

    def passes(self, scores: int) -> int:
        """Return the number of passes over `scores` scores (AXN's setting)."""
        if self.epochs != "auto":
            return self.epochs
        large = scores >= LARGE
        return (10 if large else 20) if self.vectors == "inductive" else (4 if large else 10)

    def rate(self, scores: int) -> float:
        """Return the learning rate for `scores` scores (AXN's setting)."""
        return (1e-3 if scores >= LARGE else 5e-3) if self.lr == "auto" else self.lr


LARGE = 10**7
"""Scores from which AXN trains for fewer passes, at a lower rate."""


class ScoresSpec(Section):
    """Pairs of a query and a document to score ahead: a sparse matrix."""

    judged: Annotated[int, Field(ge=0, le=10_000_000)] = 50
    """Judged train queries that are kept for scores, by a hash of their ids; the cross-encoder never learns from
    them."""
    titles: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Titles of documents that serve as queries, drawn by a hash of the ids."""
    spans: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Spans of documents that serve as queries, drawn by a hash of the ids: 64 words of each."""
    per: Literal["query", "item"] = "query"
    """`query`: `count` documents of every query. `item`: `count` queries of every document."""
    count: Count | Literal["all"] = 100
    """Documents of a query, or queries of a document."""
    draw: Literal["base", "random"] = "base"
    """`base`: the base encoder's best are scored. `random`: random ones."""

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
        """Number of queries."""
        return self.judged + self.titles + self.spans

    def pairs(self, documents: int) -> int:
        """Return the number of pairs to score for a corpus of `documents` documents."""
        if self.count == "all":
            return self.queries * documents
        return self.count * documents if self.per == "item" else self.queries * min(self.count, documents)
