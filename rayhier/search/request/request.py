"""Requests to search an index, and the rules that check requests. Shapes: Q queries, M embedding size."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.dataset.ranking import Needs
from rayhier.search.routing.chosen_beam import Calibration
from rayhier.spec import InputError, JobSpec
from rayhier.spec.corpus import FieldType
from rayhier.spec.filter import Filter, parse
from rayhier.spec.search import Mode, SearchSpec
from rayhier.storage.leaf_map import Manifest

Queries = Sequence[str] | Floats
"""Queries as texts, or as vectors [q, m]."""
UNIT_WITHIN = 0.01
"""Largest difference of a vector's length from 1 if the similarity is cosine. Clients may round vectors."""
KEYS = {
    "k": "search.k",
    "beam": "search.beam",
    "budget": "search.rerank.budget",
    "calls": "search.rerank.budget",
    "pool": "search.rerank.pool",
}
"""Name of a limit without `max_` -> spec key that gives requests their default."""

NO_WORDS = ". bm25 and hybrid need an index with words: set index.words true in the spec, and run it again"
NO_CROSS_ENCODER = "none, or an index whose spec has cross_encoder and search.rerank. Model and index need no change"


@dataclass(frozen=True)
class SearchLimits:
    """Limits of a request's size, as in a server's `RequestLimits`. By default, only `k` is limited."""

    max_k: float = 1_000_000
    max_beam: float = math.inf
    max_budget: float = math.inf
    max_calls: float = math.inf
    max_pool: float = math.inf
    max_batch: float = math.inf
    max_query: float = math.inf


@dataclass(frozen=True)
class Request:
    """Queries and the settings of their search, with every default filled in."""

    queries: Queries
    k: int
    beam: int
    """Largest number of leaves that a query visits at first. 0 if BM25 alone, or a level of a tree, finds documents."""
    mode: Mode = "dense"
    where: Filter | None = None
    """Filter that results meet. None if all documents may be results."""
    budget: int = 0
    """Number of documents that the cross-encoder reads for a query. 0 if results are not re-ranked."""
    pool: int | None = None
    """Number of documents found for a query, among which the cross-encoder reads. None if results are not re-ranked."""
    fills: bool = False
    """True if a query visits more leaves until it has `k` documents, as neither request nor spec sets a beam."""
    needs: Needs = "texts"
    """Columns of documents that results need. Re-ranking reads further columns."""

    @property
    def read(self) -> Needs:
        """Columns that are read of the documents found: columns for the results or for the cross-encoder."""
        return self.needs if self.pool is None else "vectors"

    @property
    def encodes(self) -> bool:
        """True if the search needs the queries' vectors. BM25 alone does not."""
        return self.mode != "bm25" or self.pool is not None

    @property
    def texts(self) -> Sequence[str]:
        """The queries as texts. ValueError if queries are vectors."""
        if isinstance(self.queries, np.ndarray):
            raise ValueError("queries: got vectors; allowed: texts")
        return self.queries

    def part(self, rows: slice) -> "Request":
        return replace(self, queries=self.queries[rows])


@dataclass(frozen=True)
class Rules:
    """Rules for requests to an index, from its spec, its size and a server's limits."""

    search: SearchSpec
    leaves: int
    rows: int
    """Number of rows of the index. A document in two leaves has two rows."""
    fields: Mapping[str, FieldType] = field(default_factory=dict)
    """Types of the declared fields, which filters may name."""
    dimension: int | None = None
    """Size of a query's vector. None if any size is allowed."""
    is_cosine: bool = False
    """True if vectors must have unit length."""
    words: bool = False
    """True if the index counts words, so that a query may name any mode."""
    groups: int = 1
    """Number of shard groups, each of which lists its own best documents by BM25."""
    limits: SearchLimits = SearchLimits()
    calibration: Calibration | None = None
    """Calibration by dev queries. None if dev queries choose no beam."""

    def request(
        self,
        queries: Queries,
        k: int | None = None,
        beam: int | None = None,
        filter: Filter | Mapping[str, Any] | None = None,  # noqa: A002 the name in every interface
        mode: str | None = None,
        rerank: bool | None = None,
        budget: int | None = None,
        name: str = "queries",
    ) -> Request:
        """Check the parts of a request, fill in the spec's defaults, and return the request.

        A budget of 0 means `rerank` False. `name` denotes the queries in messages. InputError names a part that is not
        allowed, and the allowed values.
        """
        if filter is not None and not isinstance(filter, Mapping | Filter):
            raise InputError(f"filter: got {type(filter).__name__}; allowed: an object, for instance {{'year': 2021}}")
        where = parse(filter, self.fields) if isinstance(filter, Mapping) else filter
        is_text = not isinstance(queries, np.ndarray)
        resolved = self._mode(mode, is_text=is_text)
        calls = self._calls(rerank, budget, len(queries), is_text=is_text)
        results = _within("k", self.search.k if k is None else k, self.limits.max_k)
        visits = self._visits(beam, resolved, calls, results)
        self._check_queries(name, queries)
        pool = None
        if calls and self.search.reranking is not None:
            pool = max(results, self.search.reranking.pooled(self.rows))
        fills = beam is None and not isinstance(self.search.beam, int)
        return Request(queries, results, visits, resolved, where, calls, pool, fills)

    def route(self, queries: Queries, beam: int | None = None, name: str = "queries") -> Request:
        """Check a request to route queries to at most `beam` leaves. InputError if queries or beam are not allowed."""
        self._check_queries(name, queries)
        visits = self.default_beam if beam is None else _within("beam", beam, self.limits.max_beam)
        return Request(queries, self.search.k, visits)

    def check_dimension(self, name: str, numbers: int) -> None:
        """Raise InputError if a vector's size does not fit the index. `name` denotes the vector in messages."""
        if self.dimension is not None and numbers != self.dimension:
            raise InputError(f"{name}: got {numbers} numbers; allowed: {self.dimension}, the index's dimension")

    @property
    def modes(self) -> tuple[Mode, ...]:
        return get_args(Mode) if self.words else ("dense",)

    @property
    def usual_mode(self) -> Mode:
        return self.search.usual_mode if self.words else "dense"

    @property
    def default_beam(self) -> int:
        """Largest number of leaves that a query visits if its request has neither a beam nor a number of results."""
        return self.beam_for(self.search.k)

    def beam_for(self, k: int) -> int:
        """Return the most leaves that a query visits for `k` results if its request has no beam."""
        if self.search.recall is None or self.calibration is None:
            return self.search.leaves_visited(self.leaves, self.rows)
        return min(self.calibration.chosen(self.search.recall, k).beam, self.leaves)

    def check_pool(self, request: Request, held_Q: Ints) -> None:
        """Raise InputError if re-ranking may fetch over `max_pool` documents. A query's leaves hold `held_Q` rows."""
        documents = self._pooled(request, held_Q)
        if documents > self.limits.max_pool:
            raise InputError(
                f"rerank: got {len(request.queries)} queries, which fetch {documents} documents together; "
                f"allowed: {self.limits.max_pool}, limits.max_pool"
            )

    def check_defaults(self) -> None:
        """Raise InputError if a request of one query, with the spec's defaults, would exceed a limit."""
        search, reranking = self.search, self.search.reranking
        budget = 0 if reranking is None else reranking.budget
        pool = 0
        if reranking is not None:
            read = reranking.pooled(self.rows)
            usual = Request([""], search.k, self.default_beam, mode=search.usual_mode, budget=budget, pool=read)
            pool = self._pooled(usual, np.array([self.rows]))
        defaults = {"k": search.k, "beam": self.default_beam, "budget": budget, "calls": budget, "pool": pool}
        for name, default in defaults.items():
            most = getattr(self.limits, f"max_{name}")
            if default > most:
                raise InputError(f"limits.max_{name}: got {most}; allowed: at least {default}, the spec's {KEYS[name]}")

    def _pooled(self, request: Request, held_Q: Ints) -> int:
        if request.pool is None:
            return 0
        listed = {"dense": 0, "bm25": request.pool, "hybrid": self.search.hybrid.listed(request.k) * self.groups}
        near = 0 if request.mode == "bm25" else int(np.minimum(request.pool, held_Q).sum())
        return near + len(held_Q) * min(listed[request.mode], self.rows)

    def _mode(self, requested: str | None, *, is_text: bool) -> Mode:
        if requested is None:
            return self.usual_mode if is_text else "dense"
        for mode in self.modes:
            if requested == mode:
                break
        else:
            allowed = ", ".join(self.modes)
            more = "" if self.words else NO_WORDS
            raise InputError(f"mode: got {requested!r}; allowed: {allowed}{more}")
        if mode != "dense" and not is_text:
            raise InputError(f"mode: got {mode!r} with a vector, which has no words; allowed: dense, or a text")
        return mode

    def _calls(self, rerank: bool | None, budget: int | None, queries: int, *, is_text: bool) -> int:
        if rerank and budget == 0:
            raise InputError("budget: got 0 with rerank true; allowed: 1 or more, or rerank false")
        if rerank is False or budget == 0:
            if budget:
                raise InputError(f"budget: got {budget} with rerank false; allowed: none, or rerank true")
            return 0
        reranking = self.search.reranking
        if rerank or budget is not None:
            name = "rerank" if rerank else "budget"
            if reranking is None:
                raise InputError(f"{name}: this index has no cross-encoder; allowed: {NO_CROSS_ENCODER}")
            if not is_text:
                raise InputError(f"{name}: got a vector, which no cross-encoder reads; allowed: with a text")
        if not is_text or reranking is None:
            return 0
        calls, most = reranking.budget if budget is None else budget, self.limits.max_calls
        if calls <= self.limits.max_budget and calls * queries > most:
            raise InputError(f"budget: got {calls} for each of {queries} queries; allowed: {most} in all")
        return _within("budget", calls, self.limits.max_budget)

    def _visits(self, requested: int | None, mode: Mode, calls: int, k: int) -> int:
        reranking = self.search.reranking
        reads_all = calls > 0 and reranking is not None and reranking.pool == "all"
        if requested is not None:
            refused = {
                "search.how is level, which visits no leaves; allowed: none, or search.how leaves in the "
                "spec": self.search.how == "level",
                "mode is bm25, which visits no leaves; allowed: none, or mode dense": mode == "bm25",
                "search.rerank.pool is all, so queries visit all leaves; allowed: none, or rerank false": reads_all,
            }
            for reason in (reason for reason, holds in refused.items() if holds):
                raise InputError(f"beam: got {requested}, but {reason}")
        if mode == "bm25" or self.search.how == "level":
            return 0
        if reads_all:
            return self.leaves
        return self.beam_for(k) if requested is None else _within("beam", requested, self.limits.max_beam)

    def _check_queries(self, name: str, queries: Queries) -> None:
        if len(queries) > self.limits.max_batch:
            raise InputError(f"{name}: got {len(queries)}; allowed: 1 to {self.limits.max_batch}")
        if isinstance(queries, np.ndarray):
            self._check_vectors(name, queries)
            return
        longest = max(map(len, queries), default=0)
        if longest > self.limits.max_query:
            raise InputError(f"{name}: got {longest} characters; allowed: {self.limits.max_query}")

    def _check_vectors(self, name: str, query_QM: Floats) -> None:
        square_Q = np.vecdot(query_QM, query_QM, dtype=np.float32) if query_QM.ndim == 2 else np.full(1, np.nan)
        low, high = float(square_Q.min(initial=1)), float(square_Q.max(initial=1))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InputError(f"{name}: got an array of shape {query_QM.shape}; allowed: finite numbers [q, m]")
        self.check_dimension(name, query_QM.shape[-1])
        if self.is_cosine:
            worst = max(math.sqrt(low), math.sqrt(high), key=lambda length: abs(length - 1))
            if abs(worst - 1) > UNIT_WITHIN:
                raise InputError(f"{name}: got length {worst:.4g}; allowed: 1, as the index's similarity is cosine")


def rules_of(spec: JobSpec, manifest: Manifest, calibration: Calibration | None = None) -> Rules:
    """Make the rules for requests to the index that a spec built and a manifest lists, without limits."""
    return Rules(
        spec.search,
        len(manifest.counts),  # the router visits leaves without rows too
        manifest.rows,
        spec.corpus.field_types,
        manifest.dimension,
        spec.encoder.similarity == "cosine",
        manifest.words is not None,
        calibration=calibration,
    )


def _within(name: str, number: int, most: float) -> int:
    original = number
    try:
        number = operator.index(number)
    except TypeError:
        raise InputError(f"{name}: got {number!r:.80}; allowed: a whole number") from None
    if isinstance(original, bool):
        raise InputError(f"{name}: got {original}; allowed: a whole number")
    if not 1 <= number <= most:
        raise InputError(f"{name}: got {number}; allowed: {f'1 to {most}' if math.isfinite(most) else '1 or more'}")
    return number
