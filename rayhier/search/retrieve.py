"""The steps of a search: which leaves, words or documents are read, how results are fused, which pairs are re-ranked.

`Retriever` decides and computes, but reads nothing. A `Retriever` yields work, and is sent a reply to each piece:

| [Scan]          the leaves that queries visit, in further rounds more leaves if few documents match a filter
| [Scan, Words]   and BM25 over all documents in a hybrid search
| [Flat]          all documents, by a level of ReTreever's tree
| [Score]         pairs of a query and a document, by the cross-encoder: a round of its budget

The callers do the work: `Snapshot` in this process, and `serve.backend.engine` by shard groups.

Shapes: Q queries, A queries that are searched again, M embedding size, B leaves visited, K results.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import Needs, Ranking, compact, merge, padded, together
from rayhier.model.encoded import Encoded
from rayhier.search.request.request import Request, Rules
from rayhier.search.rerank import Reranker
from rayhier.search.routing.routes import Routes
from rayhier.search.segment.level_similarity import FlatQuery, ranked_again
from rayhier.search.segment.segment import DOC_ID, VECTOR
from rayhier.search.segment.stored import Listing, Lookup
from rayhier.search.words.hybrid import compared, fused
from rayhier.spec.filter import Filter

FEW = 4
"""If all leaves seem to hold at most this many times the matches that a query needs, the query visits all leaves.
Choosing most of the leaves would take longer (docs/results/LOG.md)."""
RERANKER = "reranker"
"""Name of the cross-encoder among the parts that did not answer."""


@dataclass(frozen=True)
class Scan:
    """A piece of a search's work: score the documents in the leaves that queries visit. The answer is a `Ranking`."""

    query_QM: Floats
    leaves_QB: Ints
    """Leaves [q, β] that each query visits. -1 means none."""
    k: int
    where: Filter | None = None
    needs: Needs = "texts"

    def visits(self, leaves: range) -> Bools:
        in_range_QB = (self.leaves_QB >= leaves.start) & (self.leaves_QB < leaves.stop)
        return np.asarray(in_range_QB.any(axis=1))

    def part(self, here_Q: Bools) -> "Scan":
        """Return the part of this work that is for the queries that a mask [q] marks."""
        if here_Q.all():
            return self
        return replace(self, query_QM=self.query_QM[here_Q], leaves_QB=self.leaves_QB[here_Q])


@dataclass(frozen=True)
class Words:
    """A piece of a search's work: score all documents by BM25. The answer is a `Ranking`."""

    texts: Sequence[str]
    query_QM: Floats | None
    """Vectors [q, m] of the queries, to score BM25's results by vectors too. None: only BM25 scores results."""
    k: int
    where: Filter | None = None
    needs: Needs = "texts"


@dataclass(frozen=True)
class Flat:
    """A piece of a search's work: list the best documents by a tree's level. The answer is a `Ranking`."""

    query: FlatQuery
    results: int
    """Number of results that the list must hold. A result may have several rows."""
    where: Filter | None = None
    needs: Needs = "texts"


@dataclass(frozen=True)
class Exact:
    """A part of an exact search, to measure what searches miss: compare documents by vectors, for a `Ranking`."""

    query_QM: Floats
    k: int
    where: Filter | None = None
    part: int = 0
    """Number of this part, less than `parts`. The change log's tail belongs to part 0."""
    parts: int = 1
    needs: Needs = "ids"

    def among(self, count: int) -> range:
        """Return which of `count` rows, or leaves, belong to the part.

        >>> [Exact(np.zeros((1, 2)), 10, part=part, parts=3).among(10) for part in range(3)]
        [range(0, 3), range(3, 6), range(6, 10)]
        """
        return range(count * self.part // self.parts, count * (self.part + 1) // self.parts)


@dataclass(frozen=True)
class Score:
    """A piece of a search's work: score (query, document) pairs by the cross-encoder. The answer is scores [n]."""

    queries: Sequence[str]
    documents: Sequence[str]


Reading = Scan | Words | Flat | Exact | Lookup | Listing
Work = Reading | Score


@dataclass(frozen=True)
class Reply:
    """The answers to a piece of work: one from each part of the index that answered."""

    parts: Sequence[Any]
    lost: Sequence[Sequence[str]] = ()
    """Names of the parts of the index that each query needed but that did not answer. Empty if all parts answered."""

    @property
    def size(self) -> int:
        """Number of rows of documents in all answers of an index's parts."""
        return sum(len(part.source) for part in self.parts)

    def names(self, queries: int) -> list[list[str]]:
        """Return `lost` as one list for each of `queries` queries, empty if all parts answered."""
        return [list(names) for names in self.lost] or [[] for _ in range(queries)]


@dataclass(frozen=True)
class Found:
    """The outcome of a search: ranking, leaves visited, and parts that did not answer."""

    ranking: Ranking
    leaves_QB: Ints
    """Leaves [q, β] that each query visited. -1 means none."""
    lost: list[list[str]]
    """Names of the parts of the index that each query needed but that did not answer."""
    near: Ranking | None = None
    """Best documents by vectors alone, before fusion and re-ranking. None for BM25 alone, or a level of a tree."""


@dataclass(frozen=True)
class Goal:
    """Numbers of results and documents at which a query's search ends, and the most leaves that the query visits."""

    k: int
    beam: int
    """Number of leaves that a query visits at first."""
    matching: int
    """Number of documents that match the filter and must be scored for a query. 0 without a filter."""
    widest: int
    """Largest number of leaves that a query visits if its first leaves have too few documents."""
    jumps: bool = False
    """True if a query with too few documents visits the `widest` leaves at once, not in steps."""

    @classmethod
    def of(cls, k: int, beam: int, leaves: int, rows: int) -> Self:
        """Make a filtered search's goal: as many matches as `beam` leaves have documents on average, but at least k.

        >>> Goal.of(k=10, beam=4, leaves=100, rows=1000).matching
        40
        """
        return cls(k, beam, max(k, round(beam * rows / leaves)), leaves)


class Widening:
    """A search of q queries in progress: results so far, leaves visited, and queries to scan again.

    A query visits more leaves until it has k results, or has visited the `widest` number of leaves. With a filter, a
    query must also score `Goal.matching` documents. Else a query would stop at its first k matches, although further
    leaves may hold nearer documents. The matches so far estimate how many leaves hold enough matches. A query visits
    25% more leaves than the estimate, and at least twice as many as before. If few documents match, the query visits
    all leaves. Each round scans all leaves of the query again, so that a document in an old and a new leaf counts once.
    The ranking's `scanned_Q` sums all rounds.
    """

    def __init__(self, leaves_QB: Ints, goal: Goal) -> None:
        """Begin with the leaves [q, β] of each query, at most the goal's `beam`."""
        self.leaves_QB = leaves_QB
        self.asked_A: Ints = np.arange(len(leaves_QB))
        """Numbers of the queries to scan next."""
        self.wider_A: Ints = np.full(len(leaves_QB), goal.beam)
        """Largest number of leaves [a] that each query in `asked_A` visits next."""
        self._goal = goal
        self._ranking: Ranking | None = None

    @property
    def leaves(self) -> Ints:
        """Leaves [a, β] to scan next, for the queries numbered in `asked_A`."""
        return self.leaves_QB if len(self.asked_A) == len(self.leaves_QB) else self.leaves_QB[self.asked_A]

    @property
    def ranking(self) -> Ranking:
        """Results of each query so far, with the cost of all scans."""
        return Ranking.none(len(self.leaves_QB)) if self._ranking is None else self._ranking

    @property
    def done(self) -> bool:
        """True if every query has enough documents, or no further leaves may be visited."""
        return not len(self.asked_A)

    def add_results(self, ranking: Ranking, stopped_A: Bools | None = None) -> None:
        """Add the ranking of the queries in `asked_A`. Queries marked in `stopped_A` [a] visit no further leaves."""
        self._ranking = ranking if self._ranking is None else _replaced(self._ranking, self.asked_A, ranking)
        goal, beam_A = self._goal, self.wider_A
        is_full = not goal.matching and ranking.row_QK.shape[1] >= goal.k and ranking.row_QK.min(initial=0) >= 0
        if is_full or beam_A.min(initial=goal.widest) >= goal.widest:
            self.asked_A = self.asked_A[:0]
            return
        few_A = (ranking.row_QK >= 0).sum(axis=1) < goal.k
        lacking_A = (few_A | (ranking.visited_Q < goal.matching)) & (beam_A < goal.widest)
        if stopped_A is not None:
            lacking_A &= ~stopped_A
        likely_A = np.ceil(1.25 * beam_A * goal.matching / (ranking.visited_Q + 1)).astype(np.int64)
        wider_A = np.maximum(2 * beam_A, likely_A)
        matches_A = (ranking.visited_Q + 1) * goal.widest / beam_A  # estimated, in all leaves
        all_A = goal.jumps | (wider_A >= goal.widest) | (matches_A <= FEW * goal.matching)
        self.wider_A = np.where(all_A, goal.widest, wider_A)[lacking_A]
        self.asked_A = self.asked_A[lacking_A]

    def visit(self, leaves_AB: Ints) -> None:
        """Add the first `wider_A` of `leaves_AB` [a, β], for the queries in `asked_A`, to the leaves visited before."""
        visits, is_known_L = [], np.zeros(2 + max(self.leaves_QB.max(initial=-1), leaves_AB.max(initial=-1)), bool)
        for query, leaf_B, wider in zip(self.asked_A.tolist(), leaves_AB, self.wider_A.tolist(), strict=True):
            before_B = self.leaves_QB[query][self.leaves_QB[query] >= 0]
            is_known_L[before_B] = is_known_L[-1] = True  # leaf -1 is the last
            visits.append(np.concatenate([before_B, leaf_B[:wider][~is_known_L[leaf_B[:wider]]]]))
            is_known_L[before_B] = False
        self.leaves_QB = padded(self.leaves_QB, max(map(len, visits), default=0), -1)
        for query, leaf_B in zip(self.asked_A.tolist(), visits, strict=True):
            self.leaves_QB[query, : len(leaf_B)] = leaf_B


def _replaced(before: Ranking, asked_A: Ints, after: Ranking) -> Ranking:
    if len(asked_A) == len(before.row_QK):
        return replace(after, scanned_Q=before.scanned_Q + after.scanned_Q)
    width, begin = after.row_QK.shape[1], len(before.source)
    score_QK, row_QK = padded(before.score_QK, width, -np.inf), padded(before.row_QK, width, -1)
    score_QK[asked_A], row_QK[asked_A] = -np.inf, -1
    score_QK[asked_A, :width] = after.score_QK
    row_QK[asked_A, :width] = np.where(after.row_QK >= 0, after.row_QK + begin, -1)
    visited_Q, scanned_Q, leaves_Q = before.visited_Q.copy(), before.scanned_Q.copy(), before.leaves_Q.copy()
    visited_Q[asked_A], leaves_Q[asked_A] = after.visited_Q, after.leaves_Q
    scanned_Q[asked_A] += after.scanned_Q
    documents = together([before.source, after.source])
    return Ranking(*compact(score_QK, row_QK, documents), visited_Q, scanned_Q, leaves_Q)


Retrieval = Generator[list[Work], list[Reply], Found]
"""Generator that yields a search's rounds of work, is sent a reply to each piece, and returns the search's outcome."""


@dataclass(frozen=True)
class Retriever:
    """Decides which work answers a request to an index, and makes the results from the replies."""

    rules: Rules
    widen: Callable[[Encoded, int], Ints]
    """Function that routes queries to a larger number of leaves [q, β] if their first leaves have too few documents."""
    reranker: Reranker | None = None

    def __call__(self, request: Request, routes: Routes, held_Q: Ints | None = None) -> Retrieval:
        """Yield the work that answers a request whose queries were encoded and routed. Returns the outcome.

        `held_Q` [q] is the number of rows in each query's leaves, to check the limit `max_pool`. None checks nothing.
        InputError if re-ranking would fetch more documents than the limit.
        """
        if request.pool is not None and held_Q is not None:
            self.rules.check_pool(request, held_Q)
        outcome = yield from self._retrieved(request, routes)
        if request.pool is None or self.reranker is None:
            return outcome
        return (yield from self._reranked(self.reranker, request, routes, outcome))

    def _retrieved(self, request: Request, routes: Routes) -> Retrieval:
        fetch = request.pool or request.k
        if request.mode == "dense":
            return (yield from self._near(request, routes, fetch))
        fusion = self.rules.search.hybrid
        depth = fusion.listed(request.k) if request.mode == "hybrid" else fetch
        query_QM = routes.encoded.numpy if request.encodes else None
        words = Words(request.texts, query_QM, depth, request.where, request.read)
        if request.mode == "bm25":
            (reply,) = yield [words]
            q = len(routes.encoded)
            return Found(_merged(reply.parts, fetch, q), np.zeros((q, 0), np.int64), reply.names(q))
        near = self._near(request, routes, max(fetch, depth))
        *replies, reply = yield [*next(near), words]
        dense = yield from _resumed(near, replies)
        ranking = fused(dense.ranking, reply.parts, fetch, fusion, depth, cosines=self.rules.is_cosine)
        if request.beam:
            ranking = replace(ranking, visited_Q=ranking.visited_Q + compared(reply.parts, dense.leaves_QB))
        lost = [sorted({*near, *far}) for near, far in zip(dense.lost, reply.names(len(dense.lost)), strict=True)]
        return Found(ranking, dense.leaves_QB, lost, dense.near)

    def _near(self, request: Request, routes: Routes, fetch: int) -> Retrieval:
        if routes.flat is not None:
            return self._flat(request, routes, routes.flat, fetch)
        return self._in_leaves(request, routes, fetch)

    def _flat(self, request: Request, routes: Routes, query: FlatQuery, fetch: int) -> Retrieval:
        results, q = self.rules.search.shortlisted(fetch), len(routes.encoded)
        (reply,) = yield [Flat(query, results, request.where, request.read)]
        ranking = ranked_again(reply.parts, results, fetch) if reply.parts else Ranking.none(q)
        return Found(ranking, routes.leaves_QB, reply.names(q))

    def _in_leaves(self, request: Request, routes: Routes, fetch: int) -> Retrieval:
        rules, q = self.rules, len(routes.encoded)
        if request.where is not None:
            goal = Goal.of(request.k, request.beam, rules.leaves, rules.rows)
        else:
            jumps = rules.rows <= request.k  # only all leaves may be enough
            end = rules.leaves if request.fills else request.beam
            goal = Goal(request.k, request.beam, matching=0, widest=end, jumps=jumps)
        widening, lost = Widening(routes.leaves_QB, goal), [list[str]() for _ in range(q)]
        while True:
            query_AM = routes.encoded.numpy if len(widening.asked_A) == q else routes.encoded[widening.asked_A].numpy
            (reply,) = yield [Scan(query_AM, widening.leaves, fetch, request.where, request.read)]
            for row, names in zip(widening.asked_A.tolist(), reply.names(len(query_AM)), strict=True):
                lost[row] = names
            lacking_A = np.array([len(names) > 0 for names in reply.lost], dtype=bool) if reply.lost else None
            widening.add_results(_merged(reply.parts, fetch, len(query_AM)), lacking_A)
            if widening.done:
                return Found(widening.ranking, widening.leaves_QB, lost, widening.ranking)
            widening.visit(self._further(routes.encoded[widening.asked_A], widening.wider_A))

    def _further(self, encoded: Encoded, wider_A: Ints) -> Ints:
        """Return leaves [a, β] for queries that visit more leaves, at most `wider_A` [a] each."""
        leaves_AB = np.full((len(wider_A), wider_A.max(initial=0)), -1)
        for wider in np.unique(wider_A).tolist():  # each width by itself, so that a query continues as it would alone
            some_A = np.flatnonzero(wider_A == wider)
            is_all = wider >= self.rules.leaves  # then in any order
            found = np.arange(wider)[None] if is_all else self.widen(encoded[some_A], wider)
            leaves_AB[some_A, : found.shape[1]] = found
        return leaves_AB

    def _reranked(self, reranker: Reranker, request: Request, routes: Routes, outcome: Found) -> Retrieval:
        """Re-rank an outcome within the request's budget. The outcome keeps its order if no cross-encoder answers."""
        query_QM, k = routes.encoded.numpy, request.k
        by_score = self.rules.search.adds_scores(request.mode)
        rounds = reranker.asking(request.texts, query_QM, outcome.ranking, k, request.budget, by_score=by_score)
        try:
            pairs = next(rounds)
            while True:
                (reply,) = yield [Score(*pairs)]
                if not reply.parts:
                    lost_parts = [[*names, RERANKER] for names in outcome.lost]
                    return Found(unread(outcome.ranking, k), outcome.leaves_QB, lost_parts, outcome.near)
                pairs = rounds.send(reply.parts[0])
        except StopIteration as end:
            return replace(outcome, ranking=_compacted(end.value))


def unread(ranking: Ranking, k: int) -> Ranking:
    """Return the best k of a ranking that was not re-ranked, without the columns that only re-ranking reads."""
    inner = [name for name in (DOC_ID, VECTOR) if name in ranking.documents.column_names]
    documents = ranking.documents.drop_columns(inner)
    score_QK, row_QK = ranking.score_QK[:, :k], ranking.row_QK[:, :k]
    return _compacted(replace(ranking, score_QK=score_QK, row_QK=row_QK, source=documents))


def _compacted(ranking: Ranking) -> Ranking:
    score_QK, row_QK, documents = compact(ranking.score_QK, ranking.row_QK, ranking.source)
    return replace(ranking, score_QK=score_QK, row_QK=row_QK, source=documents)


def _merged(parts: Sequence[Ranking], k: int, queries: int) -> Ranking:
    return parts[0] if len(parts) == 1 else merge([Ranking.none(queries), *parts], k)


def _resumed(retrieval: Retrieval, replies: list[Reply]) -> Retrieval:
    try:
        work = retrieval.send(replies)
        while True:
            work = retrieval.send((yield work))
    except StopIteration as end:
        outcome: Found = end.value
        return outcome
