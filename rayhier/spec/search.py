"""`search:` defaults of every search of the index; a query may override some of them."""

import math
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from rayhier.spec.base import Section, UnusedKeysError
from rayhier.spec.index import MOST_SMALL

ROWS_A_RESULT = 10
"""Rows for each result that the visited leaves hold, where `beam` is auto."""
ROWS_A_ROOT = 32
"""Rows, for each unit of the square root of the number of rows, that the visited leaves hold at least in an index of
more than MOST_SMALL rows: ten a result find little there, and a row in codes costs little (docs/results/LOG.md)."""
LEAVES_A_VISITED = 20
"""Where `beam` is auto, a query visits at most one in this many of the index's leaves, but at least FEWEST_VISITED."""
FEWEST_VISITED = 4
"""Least number of leaves that a query visits where `beam` is auto."""
AUTO_LEVEL = 6
"""Level of a ReTreever tree by which documents are compared where `level` is auto."""
LISTED_A_RESULT, FEWEST_LISTED = 3, {"leaves": 60, "level": 120}
"""Where `shortlist` is auto: documents to score again for each result, and the least number of documents to score
again. In an index of more than MOST_SMALL documents, among which more come before the best by codes, twice as many
(docs/results/LOG.md)."""
POOLED = 10_000
"""Most documents of the visited leaves that the cross-encoder may read with `pool: leaves`; a larger budget counts
instead."""
FUSED = 100
"""Documents that the search by vectors and BM25 each give to fusion for a query, or the number of results if larger."""

CACHE_BYTES = 50e9
"""Most disk space that searches use on a machine to cache indexes. The least recently used index is removed first. An
index that a search has open is never removed."""

AUTO_RECALL = 0.99
"""Share of the exact best documents that queries are to find with the beam that they choose, where `beam` is auto."""
FEWEST_QUERIES, MOST_QUERIES = 20, 1_000
"""Fewest dev queries that choose a beam, and the most that do: those first by a hash of the id."""
CHOOSING_DOCUMENTS = 1_000
"""Documents that choose a beam as queries, where there are fewer dev queries."""


class RecallBeam(Section):
    """A beam that queries choose: the smallest with which they find a share of what an exact search finds."""

    recall: Annotated[float, Field(ge=0.5, le=0.999)]
    """Share of the best `k` documents of an exact search that queries find, on average."""


class Rerank(Section):
    """Re-ranking by a cross-encoder, within a budget of calls for each query."""

    type: Literal["none", "rnr", "axn", "adacur"]
    """`none`: results keep the order of the search. `rnr`: the first `budget` documents of the search are read. `axn`:
    after each round, a vector is fitted to the scores so far, and finds the documents of the next round. `adacur`: as
    `axn`, by the documents' scores for anchor queries, which were computed ahead of searches."""
    budget: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Most documents that the cross-encoder reads for a query."""
    pool: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["leaves", "all"] = "leaves"
    """Documents that the cross-encoder may read. `leaves`: the best 10,000 (or `budget`, if larger) of the leaves that
    the query visits. A number: so many of the best documents of these leaves. `all`: all documents of the index."""
    rounds: Annotated[int, Field(ge=2, le=1000)] = 5
    """Number of rounds that divide the budget evenly. The last round has the remainder too. For axn and adacur."""
    fit: Literal["ridge", "lstsq"] = "ridge"
    """Model by which axn predicts the scores of unread documents. `ridge`: the search's score plus a residual that
    similar documents share. `lstsq`: least squares over the documents' vectors, as in the paper of AXN."""
    lam: Annotated[float, Field(ge=0, le=1, alias="lambda")] = 0.0
    """Share of the search's own query vector in the vector that axn fits by `lstsq`, λ."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.type == "none":
            self.refuse("budget", "pool", where="where type is rnr, axn or adacur")
        if self.type in ("none", "rnr"):
            self.refuse("rounds", where="where type is axn or adacur")
        elif self.budget < self.rounds:
            raise ValueError(f"budget at least rounds ({self.rounds}): a round makes a call")
        if self.type != "axn":
            self.refuse("fit", where="where type is axn")
        if self.lam and self.fit == "ridge":
            raise UnusedKeysError(["lambda"], "only where fit is lstsq")
        return self

    @model_validator(mode="after")
    def _a_document_a_call(self) -> Self:
        if isinstance(self.pool, int) and self.pool < self.budget:
            raise ValueError(f"pool at least budget ({self.budget}): a document is read once")
        return self

    def pooled(self, rows: int) -> int:
        """Return the number of best documents from which a query's calls are chosen, in an index of `rows` rows."""
        sizes = {"leaves": max(POOLED, self.budget), "all": rows}
        return min(sizes[self.pool] if isinstance(self.pool, str) else self.pool, rows)

    @property
    def parts(self) -> int:
        """Number of rounds in which a query's calls are made: 1 with rnr."""
        return 1 if self.type == "rnr" else self.rounds


class HybridSpec(Section):
    """Hybrid search: the rule that makes one order of the vectors' scores and BM25's scores."""

    fuse: Literal["sum", "rank"] = "sum"
    """Rule of fusion. `sum`: score by vectors + weight · BM25 / the query's best BM25. `rank`: reciprocal rank fusion,
    which reads only the ranks."""
    weight: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = "auto"
    """Weight of BM25, for `fuse: sum` only. With similarity `dot` it is multiplied by the spread of the vector scores.
    `auto`: chosen for the trained model by dev queries, where they are few by train queries in folds too; 0 where BM25
    does not pay, .3 where there are no dev queries."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.fuse == "rank":
            self.refuse("weight", where="only where fuse is sum")
        return self

    @property
    def chosen(self) -> float:
        """The weight; where it is automatic and was not settled, the usual one of an untaught encoder."""
        return UNTAUGHT_WEIGHT if self.weight == "auto" else self.weight

    def listed(self, k: int) -> int:
        """Return the number of documents that the search by vectors and BM25 each give to fusion, for `k` results."""
        return max(FUSED, k)


UNTAUGHT_WEIGHT, TAUGHT_WEIGHT = 0.3, 0.25
"""Usual weight of BM25 for an encoder that has not learned from judged queries, and for an encoder that has
(docs/results/LOG.md)."""

Mode = Literal["dense", "bm25", "hybrid"]
"""Scores that order the results: of vectors (`dense`), of BM25, or of both (`hybrid`)."""


class SearchSpec(Section):
    """Leaves that a query visits, fusion with BM25, re-ranking, and number of results."""

    k: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Number of results of a query."""
    how: Literal["leaves", "level"] = "leaves"
    """Documents that a query is compared with. `leaves`: the documents of some leaves, or of all with such a `beam`.
    `level`: all documents, by the few numbers of one level of a retreever router's tree, then the best by vectors."""
    level: Annotated[int, Field(ge=1, le=16)] | Literal["auto"] = "auto"
    """Level h of the tree, at which a text is 2^h numbers, for `how: level`. `auto`: 6, or the tree's depth if that is
    less."""
    shortlist: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Number of documents that are scored by their vectors after a comparison by codes, or by `level`. `auto`: three
    for each result, at least 60, or 120 for `level`. In an index of more than 200,000 documents, twice as many."""
    beam: Annotated[int, Field(ge=1)] | Literal["auto"] | RecallBeam = "auto"
    """Most leaves that a query visits, β. `{recall: 0.98}`: the fewest with which dev queries find that share of the
    exact best `k` documents, on average, for each number of results. If there are fewer than 20 dev queries, documents
    are the queries. `auto`: the same with recall 0.99. In an index of more than 200,000 rows, `auto` is as many leaves
    as hold 32 √rows and ten rows for each result, at most a twentieth of all leaves, at least 4. Where no number is
    given, here or in a request, a query that finds fewer than `k` documents visits more leaves."""
    mode: Mode | Literal["auto"] = "auto"
    """Scores that order the results of a query that names no mode: of vectors (`dense`), of BM25 (`bm25`), or of both
    (`hybrid`). `auto`: of both, where the index counts words and BM25's weight is above 0; otherwise of vectors."""
    hybrid: HybridSpec = HybridSpec()
    """Fusion of the vectors' and BM25's scores."""
    rerank: Rerank = Rerank(type="none")
    """Second ranking of the results by a cross-encoder: type `none`, `rnr`, `axn` or `adacur`."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.how != "level":
            self.refuse("level", where="only where how is level")
        if self.how == "level":
            self.refuse("beam", where="only where how is leaves")
        if isinstance(self.shortlist, int) and self.shortlist < self.k:
            raise ValueError(f"shortlist at least k ({self.k}), the number of results")
        return self

    def shortlisted(self, k: int, documents: int = 0) -> int:
        """Return the number of documents to score again for `k` results, in an index of `documents` documents.

        >>> SearchSpec().shortlisted(100, documents=100_000), SearchSpec().shortlisted(100, documents=1_000_000)
        (300, 600)
        """
        if self.shortlist != "auto":
            return max(k, self.shortlist)
        return max(FEWEST_LISTED[self.how], LISTED_A_RESULT * k) * (1 if documents <= MOST_SMALL else 2)

    def at_level(self, depth: int) -> int:
        """Return the level by which documents are compared, in a tree of the given depth."""
        return min(AUTO_LEVEL, depth) if self.level == "auto" else self.level

    @property
    def usual_mode(self) -> Mode:
        """The mode of a text that names none. Dense where it is automatic and was not settled."""
        return "dense" if self.mode == "auto" else self.mode

    def adds_scores(self, mode: Mode) -> bool:
        """Return True if a mode's own scores stand beside a cross-encoder's; else inner products of vectors do.

        Scores of BM25 and of ranks are of another range than vectors'.
        """
        return mode == "hybrid" and self.hybrid.fuse == "sum"

    def settled(self, weight: float, *, words: bool) -> Self:
        """Return these settings with an automatic mode and weight settled.

        `weight` is the model's; `words` says whether the index counts words: without, nothing is fused.

        >>> [SearchSpec().settled(weight, words=True).mode for weight in (0.0, 0.1)]
        ['dense', 'hybrid']
        """
        hybrid = self.hybrid
        if words and hybrid.fuse == "sum" and hybrid.weight == "auto":
            hybrid = hybrid.model_copy(update={"weight": weight})
        mode: Mode | Literal["auto"] = self.mode
        if mode == "auto":
            pays = hybrid.fuse == "rank" or hybrid.chosen > 0
            mode = "hybrid" if words and pays else "dense"
        return self.model_copy(update={"mode": mode, "hybrid": hybrid})

    @property
    def reranking(self) -> Rerank | None:
        """Settings of re-ranking. None if the spec re-ranks nothing."""
        return None if self.rerank.type == "none" else self.rerank

    @property
    def recall(self) -> float | None:
        """Share of an exact search's best documents for which queries choose the beam. None: they choose none."""
        if isinstance(self.beam, RecallBeam):
            return self.beam.recall
        return AUTO_RECALL if self.beam == "auto" and self.how == "leaves" else None

    def leaves_visited(self, leaves: int, rows: int) -> int:
        """Return the beam β, the most leaves that a query visits, in an index of `leaves` leaves and `rows` rows.

        A document in two leaves has two rows. Where queries choose the beam, β is computed as if they did not.

        >>> SearchSpec(k=100).leaves_visited(leaves=1296, rows=10366), SearchSpec(beam=7).leaves_visited(1296, 10366)
        (65, 7)
        >>> SearchSpec(k=100).leaves_visited(leaves=4000, rows=1_000_000)  # which hold 32,000 rows
        128
        """
        if isinstance(self.beam, int):
            return min(self.beam, leaves)
        least = ROWS_A_ROOT * math.sqrt(rows) if rows > MOST_SMALL else 0
        holding = max(ROWS_A_RESULT * self.k, least) * leaves / max(rows, 1)
        return min(leaves, max(FEWEST_VISITED, math.ceil(min(holding, leaves / LEAVES_A_VISITED))))
