"""`search:` defaults of every search of the index. A query may override some defaults."""

import math
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from rayhier.spec.base import Section, UnusedKeysError
from rayhier.spec.index import MOST_SMALL

ROWS_A_RESULT = 10
"""Rows for each result that the visited leaves hold if `beam` is auto."""
ROWS_A_ROOT = 32
"""Least rows that the visited leaves of an index of N rows hold, divided by √N, if N is above MOST_SMALL. In so large
an index, ten rows for each result find little, and a row in codes costs little (docs/results/LOG.md)."""
LEAVES_A_VISITED = 20
"""If `beam` is auto, a query visits at most one in this many of the index's leaves, but at least FEWEST_VISITED."""
FEWEST_VISITED = 4
AUTO_LEVEL = 6
"""Level of a ReTreever tree by which documents are compared if `level` is auto."""
LISTED_A_RESULT, FEWEST_LISTED = 3, {"leaves": 60, "level": 120}
"""If `shortlist` is auto: documents to rescore for each result, and the least number. An index of more than MOST_SMALL
documents rescores twice as many, as codes rank more documents above the best (docs/results/LOG.md)."""
POOLED = 10_000
"""Largest number of documents of the visited leaves that the cross-encoder may read with `pool: leaves`, unless
`budget` is more."""
FUSED = 100
"""Documents that fusion takes from BM25 and from the search by vectors, unless a query wants more results."""

CACHE_BYTES = 50e9
"""Largest number of disk space for a machine's cached indexes. The least recently used index is removed first, unless
it is open."""

AUTO_RECALL = 0.99
"""Share of the exact best documents that the chosen beam must find, if `beam` is auto."""
FEWEST_QUERIES, MOST_QUERIES = 20, 1_000
"""Fewest and most dev queries that choose a beam. Hashes of ids decide which queries are used."""
CHOOSING_DOCUMENTS = 1_000
"""Documents that choose a beam as queries, if there are fewer than FEWEST_QUERIES dev queries."""


class RecallBeam(Section):
    """The smallest beam with which queries find a share of what an exact search finds."""

    recall: Annotated[float, Field(ge=0.5, le=0.999)]
    """Share of the best `k` documents of an exact search that queries find, on average."""


class Rerank(Section):
    """Re-ranking by a cross-encoder, within a budget of calls for each query."""

    type: Literal["none", "rnr", "axn", "adacur"]
    """Order of the results. `none`: the order of the search. `rnr`: the cross-encoder reads the first `budget`
    documents. `axn`: after each round, a vector is fitted to all scores, and finds the documents of the next round.
    `adacur`: as `axn`, by the documents' scores for anchor queries, which are computed ahead of searches."""
    budget: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Largest number of documents that the cross-encoder reads for a query."""
    pool: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["leaves", "all"] = "leaves"
    """Documents that the cross-encoder may read. `leaves`: the best 10,000 (or `budget`, if larger) of the leaves that
    the query visits. A number: so many of the best documents of these leaves. `all`: all documents of the index."""
    rounds: Annotated[int, Field(ge=2, le=1000)] = 5
    """Number of rounds that divide the budget evenly. The last round also has the remainder. For axn and adacur."""
    fit: Literal["ridge", "lstsq"] = "ridge"
    """Model by which axn predicts the scores of unread documents. `ridge`: the search's score plus a residual that
    similar documents share. `lstsq`: least squares over the documents' vectors, as in the paper of AXN."""
    lam: Annotated[float, Field(ge=0, le=1, alias="lambda")] = 0.0
    """Share of the search's own query vector in the vector that axn fits by `lstsq`, λ."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.type == "none":
            self.refuse("budget", "pool", where="if type is rnr, axn or adacur")
        if self.type in ("none", "rnr"):
            self.refuse("rounds", where="if type is axn or adacur")
        elif self.budget < self.rounds:
            raise ValueError(f"budget of at least rounds ({self.rounds}), as each round makes a call")
        if self.type != "axn":
            self.refuse("fit", where="if type is axn")
        if self.lam and self.fit == "ridge":
            raise UnusedKeysError(["lambda"], "only if fit is lstsq")
        return self

    @model_validator(mode="after")
    def _a_document_a_call(self) -> Self:
        if isinstance(self.pool, int) and self.pool < self.budget:
            raise ValueError(f"pool of at least budget ({self.budget}), as each call reads another document")
        return self

    def pooled(self, rows: int) -> int:
        """Return the number of best documents from which a query's calls are chosen, in an index of `rows` rows."""
        sizes = {"leaves": max(POOLED, self.budget), "all": rows}
        return min(sizes[self.pool] if isinstance(self.pool, str) else self.pool, rows)

    @property
    def parts(self) -> int:
        return 1 if self.type == "rnr" else self.rounds


class HybridSpec(Section):
    """Hybrid search: the rule that makes one order of the vectors' scores and BM25's scores."""

    fuse: Literal["sum", "rank"] = "sum"
    """Fusion rule. `sum`: score by vectors + weight · BM25 / the query's best BM25. `rank`: reciprocal rank fusion."""
    weight: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = "auto"
    """Weight of BM25, for `fuse: sum` only. Similarity `dot` multiplies the weight by the spread of the vector scores.
    `auto`: chosen for the trained model by dev queries, and by folds of train queries if dev queries are few. `auto` is
    0 if BM25 does not help, and 0.3 if there are no dev queries."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.fuse == "rank":
            self.refuse("weight", where="only if fuse is sum")
        return self

    @property
    def chosen(self) -> float:
        """The weight. `auto` counts as the usual weight of an encoder that did not learn from judged queries."""
        return UNTAUGHT_WEIGHT if self.weight == "auto" else self.weight

    def listed(self, k: int) -> int:
        """Return the number of documents that fusion takes from BM25 and from the vector search, for `k` results."""
        return max(FUSED, k)


UNTAUGHT_WEIGHT, TAUGHT_WEIGHT = 0.3, 0.25
"""Usual weights of BM25 for encoders without and with training by judged queries (docs/results/LOG.md)."""

Mode = Literal["dense", "bm25", "hybrid"]
"""Scores that order the results: of vectors (`dense`), of BM25, or of both (`hybrid`)."""


class SearchSpec(Section):
    """Leaves that a query visits, fusion with BM25, re-ranking, and number of results."""

    k: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Number of results of a query."""
    how: Literal["leaves", "level"] = "leaves"
    """Documents that a query is compared with. `leaves`: documents of the visited leaves. `level`: all documents, by
    the few numbers of one level of a retreever router's tree. The best documents are rescored by vectors."""
    level: Annotated[int, Field(ge=1, le=16)] | Literal["auto"] = "auto"
    """Level h of the tree, at which a text is 2^h numbers, for `how: level`. `auto`: 6, or the tree's depth if less."""
    shortlist: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Number of documents that are rescored by their vectors after a comparison by codes, or by `level`. `auto`: three
    for each result, at least 60, or 120 for `level`. In an index of more than 200,000 documents, twice as many."""
    beam: Annotated[int, Field(ge=1)] | Literal["auto"] | RecallBeam = "auto"
    """Largest number of leaves that a query visits, β. `{recall: 0.98}`: the fewest with which dev queries find 98% of
    the exact best `k` documents on average, for each number of results. With fewer than 20 dev queries, documents serve
    as queries. `auto`: `{recall: 0.99}`. In an index of more than 200,000 rows, `auto` visits leaves with at least 32
    √rows, and ten rows for each result. `auto` visits at most a twentieth of all leaves, and at least 4. Without a
    number here or in a request, queries visit more leaves to find `k` documents."""
    mode: Mode | Literal["auto"] = "auto"
    """Scores that order the results of a query that names no mode: of vectors (`dense`), of BM25 (`bm25`), or of both
    (`hybrid`). `auto`: of both if the index counts words and BM25's weight is above 0. Otherwise of vectors."""
    hybrid: HybridSpec = HybridSpec()
    rerank: Rerank = Rerank(type="none")
    """Second ranking of the results by a cross-encoder: type `none`, `rnr`, `axn` or `adacur`."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.how != "level":
            self.refuse("level", where="only if how is level")
        if self.how == "level":
            self.refuse("beam", where="only if how is leaves")
        if isinstance(self.shortlist, int) and self.shortlist < self.k:
            raise ValueError(f"shortlist of at least k ({self.k}), the number of results")
        return self

    def shortlisted(self, k: int, documents: int = 0) -> int:
        """Return the number of documents to rescore for `k` results, in an index of `documents` documents.

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
        """The mode of text queries that name no mode. Dense if the mode is automatic and not settled yet."""
        return "dense" if self.mode == "auto" else self.mode

    def adds_scores(self, mode: Mode) -> bool:
        """Return True if a mode's scores, and not inner products of vectors, are added to cross-encoder scores."""
        return mode == "hybrid" and self.hybrid.fuse == "sum"

    def settled(self, weight: float, *, words: bool) -> Self:
        """Return these settings with a fixed mode and weight in place of `auto`.

        `weight` is the model's weight of BM25. `words` is True if the index counts words. Otherwise nothing is fused.

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
        return None if self.rerank.type == "none" else self.rerank

    @property
    def recall(self) -> float | None:
        """Share of the exact best documents that the chosen beam must find. None if queries choose no beam."""
        if isinstance(self.beam, RecallBeam):
            return self.beam.recall
        return AUTO_RECALL if self.beam == "auto" and self.how == "leaves" else None

    def leaves_visited(self, leaves: int, rows: int) -> int:
        """Return the beam β, the most leaves that a query visits, in an index of `leaves` leaves and `rows` rows.

        A document in two leaves has two rows. A beam that queries chose is ignored.

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
