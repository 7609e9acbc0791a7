"""`train:` the joint training of encoder and router."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Section

Rate = Annotated[float, Field(gt=0, le=10)]
Training = Literal["taught", "joint"]
EPOCHS: dict[Training, int] = {"taught": 10, "joint": 20}
BATCHES: dict[Training, int] = {"taught": 256, "joint": 64}
Weight = Annotated[float, Field(ge=0, le=1000)]


class Loss(Section):
    """EHI's three losses (Eq. 2-6) and their weights λ; its Table 8 tunes them for each collection."""

    semantic: Weight = 1.0
    """λ1: triplets on the encoder's vectors."""
    indexing: Weight = 1.0
    """λ2: triplets on the path embeddings."""
    intra_leaf: Weight = 1.0
    """λ3: unlike documents must not share a leaf."""
    margin: Annotated[float, Field(ge=0, le=2)] = 0.3
    """γ of both triplet losses."""
    unlike: Annotated[float, Field(ge=-1, le=1)] = 0.9
    """τ: documents less similar than this are unlike."""
    intra_leaf_form: Literal["product", "triplet"] = "product"
    """`product`: Eq. 5 of the paper. `triplet`: the gated triplet of its Algorithm 1."""


class HardNegatives(Section):
    """One mined negative a query, found with the index as it stands."""

    source: Literal["query_leaves", "positive_leaf", "exact", "none"] = "query_leaves"
    """`query_leaves`: best wrong documents in the leaves of the query (Algorithm 1).
    `positive_leaf`: in the leaf of the positive (Appendix C.2). `exact`: of all documents (ANCE's, Table 12)."""
    top: Annotated[int, Field(ge=1, le=1000)] = 10
    """Drawn uniformly from this many best."""
    beam: Annotated[int, Field(ge=1, le=1000)] = 4
    """Leaves searched for them."""
    refresh: Annotated[int, Field(ge=1)] = 5
    """Mine again after so many of `unit`."""
    unit: Literal["epochs", "steps"] = "epochs"
    """Of `refresh`: the paper's section 3.5 says steps, its Table 8 reads as epochs."""


class Teaching(Section):
    """How a taught router learns which leaves hold the answers, after the encoder has trained."""

    epochs: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Passes over queries and documents."""
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """A step, over all workers."""
    lr: Rate = 1e-3
    """AdamW, falling to zero."""
    neighbours: Annotated[int, Field(ge=0, le=100)] = 10
    """Exact nearest documents of a query (a document) that count as answers beside the judged ones."""
    judged: Weight = 10.0
    """Weight of a judged answer; a neighbour's is 1."""
    documents: Weight = 0.1
    """Weight of documents as queries for themselves and their neighbours, where there are judged queries."""
    most: Annotated[int, Field(ge=1)] = 20_000
    """Documents at most that serve as queries."""


class TrainSpec(Section):
    """Batches, learning rates, losses."""

    objective: Literal["auto", "supervised", "documents"] = "auto"
    """`supervised`: judged pairs. `documents`: each document asks for its nearest neighbours, which trains a joint
    router; a taught one stays k-means. `auto`: supervised where train judgements exist."""
    epochs: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Passes over the training pairs. `auto`: 10 where the router is taught after them, 20 where it is joint."""
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] | Literal["auto"] = "auto"
    """Pairs a step, over all workers. `auto`: 256 or 64, as for `epochs`."""
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    """Texts whose activations a worker holds at a time. Gradients are cached, so they do not depend on it, and each
    text is encoded twice: batch 4096 fits one GPU. None: the whole share of a batch at once."""
    most_documents: Annotated[int, Field(ge=1_000)] = 1_000_000
    """Documents that training holds, with their vectors, in memory: judged ones, and of the others as many as there is
    room for, drawn by hash of the id. All are indexed."""
    measure_every: Annotated[int, Field(ge=1)] = 1
    """Epochs between two measurements on dev, which encode and route every document; the last is always measured."""
    encoder_lr: Rate = 1e-3
    """AdamW (weight decay 0.01, torch's default), encoder's group."""
    router_lr: Rate = 3e-3
    """AdamW (the same), router's group; joint alone."""
    loss: Loss = Loss()
    """Weights and margins."""
    hard_negatives: HardNegatives = HardNegatives()
    """Mined negatives; a taught router's encoder takes them from an exact search, whatever `source` says but `none`."""
    temperature: Annotated[float, Field(gt=0, le=10)] = 0.05
    """Of the contrast that trains a taught router's encoder: softmax(s / temperature)."""
    teaching: Teaching = Teaching()
    """Of a taught router."""

    def passes(self, training: Training) -> int:
        """Epochs over the pairs."""
        return EPOCHS[training] if self.epochs == "auto" else self.epochs

    def pairs_a_step(self, training: Training) -> int:
        """Pairs of a batch."""
        return BATCHES[training] if self.batch_size == "auto" else self.batch_size
