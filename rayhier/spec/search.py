"""`search:` defaults of every search over the index."""

import math
from typing import Annotated, Literal, Self, get_args

from pydantic import ConfigDict, Field, model_validator

from rayhier.spec.base import Section, UnusedKeysError
from rayhier.spec.index import VectorFormat

ROWS_A_RESULT = 10
"""Rows that the leaves of an automatic beam hold for each result."""
LEAVES_A_VISITED = 20
"""Least leaves of the index for each leaf of an automatic beam."""
FEWEST_VISITED = 4
"""Least leaves of an automatic beam."""
AUTO_LEVEL = 6
"""Level of a tree that is searched where `level` is auto."""
LISTED_A_RESULT, FEWEST_LISTED = 3, 300
"""Documents to score again for each result, and least number of these, where `shortlist` is auto."""
POOLED = 10_000
"""Most documents of the visited leaves that a cross-encoder may read, where the budget is not larger."""


Codec = Literal["flat", "fp16", "int8", "pq", "rabitq"]
LOSSLESS: dict[VectorFormat, Codec] = {"float16": "fp16", "float32": "flat"}
"""Format of the stored vectors -> the codec without loss."""


class MassBeam(Section):
    """A beam by probability: a query visits leaves whose documents are probable enough answers, at most as `auto`."""

    type: Literal["mass"]
    target: Annotated[float, Field(ge=0.5, le=1)]
    """Share of the dev queries' answers that must lie in visited leaves; this share sets the least probability."""


class NoRerank(Section):
    """No re-ranking: results keep the order of the leaf scan."""

    type: Literal["none"]


class Budget(Section):
    """Calls of the cross-encoder for a query, and the documents to choose from."""

    budget: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Most documents that the cross-encoder reads for a query."""
    first: Literal["base", "bm25", "both", "random"] = "base"
    """Order of the documents before the first call: by the search's score (`base`), BM25, both together, or chance. The
    scores that `fit: ridge` expects come from both with `both`, else from the search's score."""
    pool: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["leaves", "all"] = "leaves"
    """Documents that the cross-encoder may read. `leaves`: the best 10,000 (or `budget`, if larger) of the leaves that
    the query visits. A number: the best so many of these leaves. `all`: all documents of the index."""

    @model_validator(mode="after")
    def _a_document_a_call(self) -> Self:
        if isinstance(self.pool, int) and self.pool < self.budget:
            raise ValueError(f"pool at least budget ({self.budget}): a document is read once")
        return self

    def pooled(self, rows: int) -> int:
        """Return the size of a query's pool, the best by the search's score, in an index of `rows` rows."""
        sizes = {"leaves": max(POOLED, self.budget), "all": rows}
        return min(sizes[self.pool] if isinstance(self.pool, str) else self.pool, rows)


class Rnr(Budget):
    """Retrieve and re-rank: the cross-encoder reads the best in the order that `first` names."""

    type: Literal["rnr"]

    @property
    def rounds(self) -> int:
        """Number of rounds: all calls are made at once."""
        return 1


class Rounds(Budget):
    """Calls in rounds: after each round, all scores so far decide the documents of the next."""

    rounds: Annotated[int, Field(ge=2, le=1000)] = 5
    """Number of rounds that divide the budget; the last has the remainder too."""

    @model_validator(mode="after")
    def _a_call_a_round(self) -> Self:
        if self.budget < self.rounds:
            raise ValueError(f"budget at least rounds ({self.rounds}): a round makes a call")
        return self


class AxnRerank(Rounds):
    """AXN: a query vector fitted to the scores so far finds the documents of the next round."""

    type: Literal["axn"]
    fit: Literal["ridge", "lstsq"] = "ridge"
    """Model of the scores. `ridge`: the search's score plus a residual that similar documents share. `lstsq`: least
    squares over the documents' vectors, as in the AXN paper."""
    mu: Annotated[float, Field(ge=1e-9, le=1e6)] = 1.0
    """Ridge's weight against the residual, μ, for unit vectors."""
    lam: Annotated[float, Field(ge=0, le=1, alias="lambda")] = 0.0
    """Share of the search's query vector in the vector of `lstsq`, λ."""

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
    """Hybrid search: the rule that makes one order of vectors' scores and BM25's."""

    fuse: Literal["sum", "rank"] = "sum"
    """`sum`: score by vectors + weight · BM25 / the query's best BM25. `rank`: reciprocal rank fusion, by places
    alone."""
    weight: Annotated[float, Field(ge=0, le=100)] = 0.3
    """Weight of BM25 in the sum, where similarity is cosine."""
    depth: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Documents that the vectors' search and BM25 each give for a query; at least as many as results."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.fuse == "rank":
            self.refuse("weight", where="only where fuse is sum")
        return self

    def listed(self, k: int) -> int:
        """Return the number of documents that the vectors' search and BM25 each give for `k` results."""
        return max(self.depth, k)


Mode = Literal["dense", "bm25", "hybrid"]
"""Order of results: by vectors, by BM25, or by both."""


class SearchSpec(Section):
    """Leaves that a search visits, scores of their documents, and number of results."""

    k: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Number of results a query returns."""
    how: Literal["leaves", "level"] = "leaves"
    """`leaves`: a query visits some leaves. `level`: it is compared with all documents by the few numbers of a level of
    a retreever router's tree, and the best are scored again."""
    level: Annotated[int, Field(ge=1, le=16)] | Literal["auto"] = "auto"
    """Level h of the tree, where a text is 2^h numbers, with `how: level`. `auto`: 6, or the tree's depth if less."""
    finish: Literal["none", "level", "vectors"] = "vectors"
    """Second score of the level's best documents: none, by the deepest level, or by the encoder's vectors."""
    shortlist: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Number of documents to score again. `auto`: three for each result, at least 300."""
    beam: Annotated[int, Field(ge=1)] | Literal["auto"] | MassBeam = "auto"
    """Leaves a query visits, β. `auto`: as many as hold ten rows for each result, at most a twentieth of all leaves,
    at least 4. `{type: mass, target: 0.95}`: as many as each query needs, by the router's own probabilities."""
    widest: Annotated[int, Field(ge=1)] | Literal["all"] = "all"
    """Most leaves that a query with a filter visits. The leaves are doubled until as many documents match as the beam
    holds without a filter, at least `k`."""
    codec: Codec | Literal["auto"] = "auto"
    """How faiss stores the vectors of a leaf: `flat` 4 bytes a dimension, `fp16` 2, `int8` 1, `pq` and `rabitq` an
    eighth of a byte. After a lossy codec the best rows are scored again by the stored vectors. `auto`: the precision
    of the stored vectors, so that nothing is lost."""
    cache_gb: Annotated[float, Field(gt=0)] = 50
    """Most disk space, in 10⁹ bytes, that searches use on a machine to cache indexes: the least recently used is
    removed first; an index that a search has open is never removed."""
    mode: Mode = "dense"
    """Order of results where a query names none: `dense`, by vectors; `bm25`; `hybrid`, by both."""
    hybrid: HybridSpec | None = None
    """Fusion of both orders. Where this or a mode other than dense is given, searches count the words of all documents,
    and queries may name any mode."""
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
        """Return the number of documents to score again for `k` results; k where `finish` is none."""
        if self.finish == "none":
            return k
        return max(FEWEST_LISTED, LISTED_A_RESULT * k) if self.shortlist == "auto" else max(k, self.shortlist)

    def at_level(self, depth: int) -> int:
        """Return the level to search in a tree of a depth."""
        return min(AUTO_LEVEL, depth) if self.level == "auto" else self.level

    @property
    def words(self) -> bool:
        """Return True if searches can use BM25."""
        return self.hybrid is not None or self.mode != "dense"

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Modes that a query may name."""
        return get_args(Mode) if self.words else ("dense",)

    @property
    def reranking(self) -> Rnr | AxnRerank | AdacurRerank | None:
        """Settings of re-ranking; None where the spec re-ranks nothing."""
        return None if isinstance(self.rerank, NoRerank) else self.rerank

    @property
    def fusion(self) -> HybridSpec:
        """Fusion of vectors' scores and BM25's: the spec's, else the defaults."""
        return self.hybrid or HybridSpec()

    def leaves_widened(self, leaves: int) -> int:
        """Return the most leaves that a query with a filter visits, in an index of `leaves` leaves."""
        return leaves if self.widest == "all" else min(self.widest, leaves)

    @property
    def reach(self) -> float | None:
        """Share of the dev queries' answers that a beam by probability must reach; None: all queries share a beam."""
        return self.beam.target if isinstance(self.beam, MassBeam) else None

    def leaves_visited(self, leaves: int, rows: int) -> int:
        """Return the beam β, most leaves that a query visits, in an index of `leaves` leaves and `rows` rows.

        A document in two leaves has two rows.

        >>> SearchSpec(k=100).leaves_visited(leaves=1296, rows=10366), SearchSpec(beam=7).leaves_visited(1296, 10366)
        (65, 7)
        """
        if isinstance(self.beam, int):
            return min(self.beam, leaves)
        holding = ROWS_A_RESULT * self.k * leaves / max(rows, 1)
        return min(leaves, max(FEWEST_VISITED, math.ceil(min(holding, leaves / LEAVES_A_VISITED))))
