"""`search:` defaults of every search over the index."""

import math
from typing import Annotated, Literal, Self, get_args

from pydantic import ConfigDict, Field, model_validator

from rayhier.spec.base import Section, UnusedKeysError
from rayhier.spec.index import VectorFormat

ROWS_A_RESULT = 10
"""Rows that the leaves of an automatic beam hold for each result."""
LEAVES_A_VISITED = 20
"""Leaves for each that an automatic beam visits, at least."""
FEWEST_VISITED = 4
"""Least leaves of an automatic beam."""
AUTO_LEVEL = 6
"""Level of a tree that is searched where `level` is auto."""
LISTED_A_RESULT, FEWEST_LISTED = 3, 300
"""Documents that are scored again for each result, and at least, where `shortlist` is auto."""
POOLED = 10_000
"""Documents of the visited leaves that a cross-encoder may read, at most, or the budget."""


Codec = Literal["flat", "fp16", "int8", "pq", "rabitq"]
LOSSLESS: dict[VectorFormat, Codec] = {"float16": "fp16", "float32": "flat"}
"""Format of the stored vectors -> the codec that loses nothing of them."""


class MassBeam(Section):
    """A beam by probability: a query visits leaves whose documents are probable enough answers, at most as `auto`."""

    type: Literal["mass"]
    target: Annotated[float, Field(ge=0.5, le=1)]
    """Share of the dev queries' answers that must lie in visited leaves; it sets which probability is enough."""


class NoRerank(Section):
    """No re-ranking: results keep the order of the leaf scan."""

    type: Literal["none"]


class Budget(Section):
    """Calls of the cross-encoder that a query may make, and the documents that it may make them for."""

    budget: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Documents that the cross-encoder reads for a query, at most."""
    first: Literal["base", "bm25", "both", "random"] = "base"
    """What orders the documents before the first call: the search's own score, BM25, both together, or chance. A ridge
    expects what `both` says of documents, with the others what the search's own score says."""
    pool: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["leaves", "all"] = "leaves"
    """Documents that may be read: those of the leaves that the query visits, at most 10,000 or the budget, the best so
    many of these, or all of the index."""

    @model_validator(mode="after")
    def _a_document_a_call(self) -> Self:
        if isinstance(self.pool, int) and self.pool < self.budget:
            raise ValueError(f"pool at least budget ({self.budget}): a document is read once")
        return self

    def pooled(self, rows: int) -> int:
        """Number of documents that a query may read some of, the best by the search's own score, of `rows`."""
        sizes = {"leaves": max(POOLED, self.budget), "all": rows}
        return min(sizes[self.pool] if isinstance(self.pool, str) else self.pool, rows)


class Rnr(Budget):
    """Retrieve and re-rank: the budget goes to the best in the order that `first` names."""

    type: Literal["rnr"]

    @property
    def rounds(self) -> int:
        """Number of rounds: all calls are made at once."""
        return 1


class Rounds(Budget):
    """Calls in rounds: after each, the scores so far say which documents are read next."""

    rounds: Annotated[int, Field(ge=2, le=1000)] = 5
    """Rounds that the budget is divided into; the remainder is spent in the last."""

    @model_validator(mode="after")
    def _a_call_a_round(self) -> Self:
        if self.budget < self.rounds:
            raise ValueError(f"budget at least rounds ({self.rounds}): a round makes a call")
        return self


class AxnRerank(Rounds):
    """AXN: a vector of the query that explains its scores so far finds the documents to be read next."""

    type: Literal["axn"]
    fit: Literal["ridge", "lstsq"] = "ridge"
    """How scores are explained. `ridge`: by the search's own score, and a residual that similar documents share.
    `lstsq`: by least squares over the documents' vectors, as AXN is printed."""
    mu: Annotated[float, Field(ge=1e-9, le=1e6)] = 1.0
    """Ridge's weight against the residual, μ, for unit vectors."""
    lam: Annotated[float, Field(ge=0, le=1, alias="lambda")] = 0.0
    """Share of the search's own query vector in that of `lstsq`, λ."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.fit == "ridge":
            if self.lam:
                raise UnusedKeysError(["lambda"], "only where fit is lstsq")
        else:
            self.refuse("mu", where="only where fit is ridge")
        return self


class AdacurRerank(Rounds):
    """ADACUR: a document's vector is its scores for anchor queries, which are computed ahead for all documents."""

    type: Literal["adacur"]


Rerank = Annotated[NoRerank | Rnr | AxnRerank | AdacurRerank, Field(discriminator="type")]


class HybridSpec(Section):
    """BM25 beside the vectors' search: how the two make one order."""

    fuse: Literal["sum", "rank"] = "sum"
    """`sum`: score by vectors + weight · BM25 / the query's best BM25. `rank`: reciprocal rank fusion, which knows
    places alone."""
    weight: Annotated[float, Field(ge=0, le=100)] = 0.3
    """Weight of BM25 in the sum, where similarity is cosine."""
    depth: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Documents that each of the two finds for a query; as many as results where these are more."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.fuse == "rank":
            self.refuse("weight", where="only where fuse is sum")
        return self

    def listed(self, k: int) -> int:
        """Documents that each of the two finds for `k` results."""
        return max(self.depth, k)


Mode = Literal["dense", "bm25", "hybrid"]
"""What orders results: vectors, BM25, or both."""


class SearchSpec(Section):
    """How many leaves a search reads, how it scores them, and how many results it returns."""

    k: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Number of results a query returns."""
    how: Literal["leaves", "level"] = "leaves"
    """`leaves`: a query visits some leaves. `level`: it is compared with all documents by the few numbers of a level of
    a retreever router's tree, and the best are scored again."""
    level: Annotated[int, Field(ge=1, le=16)] | Literal["auto"] = "auto"
    """Level h of the tree, where a text is 2^h numbers, with `how: level`. `auto`: 6, or the tree's depth if less."""
    finish: Literal["none", "level", "vectors"] = "vectors"
    """What scores the best documents of the level again: nothing, the deepest level, or the encoder's vectors."""
    shortlist: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Number of documents that are scored again. `auto`: three for each result, at least 300."""
    beam: Annotated[int, Field(ge=1)] | Literal["auto"] | MassBeam = "auto"
    """Leaves a query visits, β. `auto`: as many as hold ten rows for each result, at most a twentieth of all leaves,
    at least 4. `{type: mass, target: 0.95}`: as many as each query needs, by the router's own probabilities."""
    widest: Annotated[int, Field(ge=1)] | Literal["all"] = "all"
    """Most leaves that a query with a filter visits: twice as many at a time, until as many documents match as its beam
    holds without a filter, and `k` at least."""
    codec: Codec | Literal["auto"] = "auto"
    """How faiss stores the vectors of a leaf: `flat` 4 bytes a dimension, `fp16` 2, `int8` 1, `pq` and `rabitq` an
    eighth of a byte. After a lossy codec the best rows are scored again by the stored vectors. `auto`: the precision
    of the stored vectors, so that nothing is lost."""
    cache_gb: Annotated[float, Field(gt=0)] = 50
    """Most disk space, in 10⁹ bytes, that searches use on a machine to cache indexes: the least recently used is
    removed first; an index that a search has open is never removed."""
    mode: Mode = "dense"
    """What orders results where a query does not say: `dense`, the vectors' search; `bm25`; `hybrid`, both."""
    hybrid: HybridSpec | None = None
    """How both make one order. Searches count the words of all documents where this or another mode than dense is
    given, and queries may then ask for any mode."""
    rerank: Rerank = NoRerank(type="none")
    """Second ranking, by a cross-encoder: `none`, `rnr`, `axn` or `adacur`."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.words and self.how == "level" and self.finish != "vectors":
            raise ValueError("finish: vectors, where mode or hybrid is given: BM25 is added to scores by vectors")
        if self.how == "leaves":
            self.refuse("level", "finish", "shortlist", where="only where how is level")
        else:
            self.refuse("beam", "widest", where="only where how is leaves")
        if self.finish == "none":
            self.refuse("shortlist", where="only where finish is not none")
        if isinstance(self.shortlist, int) and self.shortlist < self.k:
            raise ValueError(f"shortlist at least k ({self.k}), the number of results")
        return self

    def shortlisted(self, k: int) -> int:
        """Number of documents that are scored again for `k` results; k where none are."""
        if self.finish == "none":
            return k
        return max(FEWEST_LISTED, LISTED_A_RESULT * k) if self.shortlist == "auto" else max(k, self.shortlist)

    def at_level(self, depth: int) -> int:
        """Level that a tree of some depth is searched at."""
        return min(AUTO_LEVEL, depth) if self.level == "auto" else self.level

    @property
    def words(self) -> bool:
        """Return True if searches have BM25."""
        return self.hybrid is not None or self.mode != "dense"

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Modes that a query may ask for."""
        return get_args(Mode) if self.words else ("dense",)

    @property
    def reranking(self) -> Rnr | AxnRerank | AdacurRerank | None:
        """Calls of the cross-encoder and what they may be made for; None where the spec re-ranks nothing."""
        return None if isinstance(self.rerank, NoRerank) else self.rerank

    @property
    def fusion(self) -> HybridSpec:
        """How both make one order."""
        return self.hybrid or HybridSpec()

    def leaves_widened(self, leaves: int) -> int:
        """Most leaves that a query with a filter visits, of `leaves`."""
        return leaves if self.widest == "all" else min(self.widest, leaves)

    @property
    def reach(self) -> float | None:
        """Share of the dev queries' answers that queries with beams of their own must reach; None: one beam for all."""
        return self.beam.target if isinstance(self.beam, MassBeam) else None

    def leaves_visited(self, leaves: int, rows: int) -> int:
        """Most leaves that a query visits, β, of `leaves`, which hold `rows` rows (two for a document in two leaves).

        >>> SearchSpec(k=100).leaves_visited(leaves=1296, rows=10366), SearchSpec(beam=7).leaves_visited(1296, 10366)
        (65, 7)
        """
        if isinstance(self.beam, int):
            return min(self.beam, leaves)
        holding = ROWS_A_RESULT * self.k * leaves / max(rows, 1)
        return min(leaves, max(FEWEST_VISITED, math.ceil(min(holding, leaves / LEAVES_A_VISITED))))
