"""The HTTP interface of a served index: paths, limits of requests, responses. Any `Backend` can answer behind it."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.middleware import Middleware

from rayhier.search.answer import Answer
from rayhier.serve.args import RequestLimits
from rayhier.serve.body import json_route, most_values
from rayhier.serve.cors import cross_origin
from rayhier.serve.engine import Answers, Questions, Routes
from rayhier.serve.error_handlers import install
from rayhier.serve.errors import RETRY, ApiError, invalid
from rayhier.serve.guard import Answered, Guard
from rayhier.serve.models import (
    AnswerBody,
    BatchRequest,
    BatchResponse,
    ErrorBody,
    Explanation,
    Health,
    IndexResponse,
    Part,
    RoutedLeaf,
    RouteRequest,
    RouteResponse,
    SearchRequest,
    SearchResponse,
    Visits,
)
from rayhier.serve.ready import Readiness
from rayhier.serve.results import ResultWriter
from rayhier.serve.threads import run_in_thread
from rayhier.serve.tokens import Tokens
from rayhier.spec.filter import Filter, parse
from rayhier.spec.search import Mode

Note = Callable[[Answers], None]
"""What keeps count of answers."""
log = logging.getLogger("ray.serve")
LEAF_BYTES, ROUTED_BYTES = 8, 100
"""Bytes of a leaf's number in an answer, and of what `explain` says of a leaf, about."""
UNIT_WITHIN = 0.01
"""How far the length of a vector may be from 1 where similarity is cosine: clients round vectors to few bits."""
SAID = {
    400: "The body is not UTF-8 text.",
    401: "Missing or wrong token.",
    403: "The token only reads.",
    404: "No such path.",
    405: "Wrong method for this path; the header Allow lists the right ones.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or holds too many values.",
    415: "The body is not application/json in UTF-8.",
    422: "The request is invalid; the message says where, and what is allowed.",
    500: "A defect in the server; its log has the error.",
    503: "Too many requests at once, or a deployment did not answer a `strict` request; Retry-After: seconds to wait.",
    504: "No answer within limits.seconds.",
}


class Backend(Protocol):
    """What answers questions behind the HTTP interface."""

    def search(
        self,
        questions: Questions,
        k: int,
        beam: int,
        where: Filter | None = None,
        budget: int = 0,
        mode: Mode = "dense",
    ) -> Awaitable[Answers]:
        """The best `k` documents of each question in the leaves that it visits, at most `beam`.

        With a filter, of those that it lets through, and in as many leaves as hold enough of them. With a budget,
        re-ranked by as many calls of a cross-encoder for each question. By `mode`, what orders them.
        """

    def route(self, questions: Questions, beam: int) -> Awaitable[Routes]:
        """The leaves that each question visits, at most `beam`, in the order of visit."""

    def unavailable(self) -> Awaitable[list[str]]:
        """Names of the shard groups that do not answer now, and `reranker` where the cross-encoder does not."""


def api(
    engine: Backend,
    index: IndexResponse,
    limits: RequestLimits,
    tokens: Tokens | None = None,
    *,
    origins: Sequence[str] = (),
    log_queries: bool = False,
    note: Note = lambda _: None,
    answered: Answered = lambda *_: None,
    admit: Callable[[], None] = lambda: None,
) -> FastAPI:
    """The HTTP application that serves one index, to pages of some origins too.

    `note` is called with all answers, `answered` after every request, `admit` before each that has a body.
    """
    tokens = tokens or Tokens(None)
    app = FastAPI(
        title="rayhier",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[*cross_origin(origins), _guard(tokens, limits, answered, admit)],
        responses={status: {"model": ErrorBody, "description": said} for status, said in SAID.items()},
    )
    app.router.route_class = json_route(most_values(limits, index.dimension))
    install(app)
    _health(app, engine)
    _questions(app, engine, _Ask(index, limits, log_queries=log_queries), index, note)
    if tokens.required:
        _say_token(app)
    return app


class _Ask:
    """Converts requests to what an engine takes; ApiError where a request exceeds a limit."""

    def __init__(self, index: IndexResponse, limits: RequestLimits, *, log_queries: bool) -> None:
        self.index, self.limits, self.log_queries = index, limits, log_queries

    def k(self, given: int | None) -> int:
        return _within("k", self.index.k if given is None else given, self.limits.max_k)

    def visits(self, given: int | None, mode: Mode, calls: int) -> int:
        """Leaves that a search visits, at most."""
        if given is None:
            return self.index.beam
        whys = {
            "this index is searched by a level of its tree": self.index.how == "level",
            "mode is bm25, which visits no leaves": mode == "bm25",
            "this index re-ranks documents of all leaves": calls > 0 and self.index.pool == "all",
        }
        for why in (why for why, holds in whys.items() if holds):
            raise invalid(f"beam: got {given}, but {why}; allowed: none")
        return self.beam(given)

    def beam(self, given: int | None) -> int:
        return _within("beam", self.index.beam if given is None else given, self.limits.max_beam)

    def where(self, given: dict[str, Any] | None) -> Filter | None:
        """The filter; InputError, answered 422, where it is none over the declared fields."""
        return None if given is None else parse(given, self.index.fields)

    def mode(self, asked: SearchRequest | BatchRequest) -> Mode:
        """What orders the results."""
        is_text = (asked.query if isinstance(asked, SearchRequest) else asked.queries) is not None
        if asked.mode is None:
            return self.index.mode if is_text else "dense"
        if asked.mode not in self.index.modes:
            allowed = f"{', '.join(self.index.modes)}, or an index whose spec has search.hybrid: BM25 is not built"
            raise invalid(f"mode: got {asked.mode!r}; allowed: {allowed}")
        if asked.mode != "dense" and not is_text:
            raise invalid(f"mode: got {asked.mode!r} with a vector, which has no words; allowed: dense, or a text")
        return asked.mode

    def calls(self, asked: SearchRequest | BatchRequest) -> int:
        """Calls of the cross-encoder for each question; 0: not re-ranked."""
        is_text = (asked.query if isinstance(asked, SearchRequest) else asked.queries) is not None
        if asked.rerank is False:
            if asked.budget is not None:
                raise invalid(f"budget: got {asked.budget} with rerank false; allowed: none, or rerank true")
            return 0
        if asked.rerank or asked.budget is not None:
            name = "rerank" if asked.rerank else "budget"
            if self.index.rerank == "none":
                raise invalid(f"{name}: this index has no cross-encoder; allowed: an index whose spec re-ranks")
            if not is_text:
                raise invalid(f"{name}: got a vector, which no cross-encoder reads; allowed: with a text")
        if not is_text or self.index.rerank == "none":
            return 0
        budget = self.index.budget if asked.budget is None else asked.budget
        questions, most = 1 if isinstance(asked, SearchRequest) else len(asked.queries or []), self.limits.max_calls
        if budget <= self.limits.max_budget and budget * questions > most:
            raise invalid(f"budget: got {budget} for each of {questions} questions; allowed: {most} in all")
        return _within("budget", budget, self.limits.max_budget)

    def writer(self, include: Sequence[Part] | None) -> ResultWriter:
        """A writer of the results of one response."""
        return ResultWriter(include, self.limits.max_answer_bytes)

    def one(self, asked: SearchRequest | RouteRequest) -> Questions:
        if asked.vector is not None:
            return self._vectors("vector", [asked.vector])
        return self._texts("query", [asked.query or ""])

    def many(self, asked: BatchRequest) -> Questions:
        if asked.vectors is not None:
            return self._vectors("vectors", asked.vectors)
        return self._texts("queries", asked.queries or [])

    def _texts(self, name: str, texts: list[str]) -> Questions:
        self._few(name, texts)
        longest = max(len(text) for text in texts)
        if longest > self.limits.max_query:
            raise invalid(f"{name}: got {longest} characters; allowed: {self.limits.max_query}")
        for text in texts if self.log_queries else ():
            log.info("%s: %r", name, text)
        return texts

    def _vectors(self, name: str, vectors: list[list[float]]) -> Questions:
        self._few(name, vectors)
        sizes = {len(vector) for vector in vectors} - {self.index.dimension}
        if sizes:
            raise invalid(f"{name}: got {max(sizes)} numbers; allowed: {self.index.dimension}, the index's dimension")
        vector_QM = np.array(vectors, dtype=np.float32)
        if self.index.similarity == "cosine":
            length_Q = np.linalg.norm(vector_QM, axis=1)
            worst = length_Q[np.abs(length_Q - 1).argmax()]
            if abs(worst - 1) > UNIT_WITHIN:
                raise invalid(f"{name}: got length {worst:.4g}; allowed: 1, since the index's similarity is cosine")
        return vector_QM

    def _few(self, name: str, asked: Sequence[object]) -> None:
        if len(asked) > self.limits.max_batch:
            raise invalid(f"{name}: got {len(asked)}; allowed: 1 to {self.limits.max_batch}")


def _guard(tokens: Tokens, limits: RequestLimits, answered: Answered, admit: Callable[[], None]) -> Middleware:
    return Middleware(Guard, tokens=tokens, limits=limits, answered=answered, admit=admit)


def _within(name: str, given: int, most: int) -> int:
    if given > most:
        raise invalid(f"{name}: got {given}; allowed: 1 to {most}")
    return given


def _health(app: FastAPI, engine: Backend) -> None:
    ready = Readiness(engine.unavailable)

    @app.get("/healthz", summary="Check that the server is up", tags=["health"])
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/readyz",
        summary="Check that every shard group answers a search, and the cross-encoder",
        response_model=Health,
        responses={503: {"model": Health, "description": "Some deployments do not answer; `lost` names them."}},
        tags=["health"],
    )
    async def readyz() -> JSONResponse:
        lost = await ready()
        return JSONResponse({"ready": not lost, "lost": lost}, 503 if lost else 200, RETRY if lost else None)


def _questions(app: FastAPI, engine: Backend, ask: _Ask, index: IndexResponse, note: Note) -> None:
    @app.post("/v1/search", summary="Find documents", tags=["search"])
    async def search(asked: SearchRequest) -> SearchResponse:
        where, mode, calls = ask.where(asked.filter), ask.mode(asked), ask.calls(asked)
        beam = ask.visits(asked.beam, mode, calls)
        given = await engine.search(ask.one(asked), ask.k(asked.k), beam, where, calls, mode)
        note(given)
        (body,) = await _bodies(given, ask.writer(asked.include), strict=asked.strict, explain=asked.explain)
        return SearchResponse(**dict(body), mode=mode, version=index.version, ms=given.ms)

    @app.post("/v1/search:batch", summary="Find documents for several questions", tags=["search"])
    async def batch(asked: BatchRequest) -> BatchResponse:
        where, mode, calls = ask.where(asked.filter), ask.mode(asked), ask.calls(asked)
        beam = ask.visits(asked.beam, mode, calls)
        given = await engine.search(ask.many(asked), ask.k(asked.k), beam, where, calls, mode)
        note(given)
        bodies = await _bodies(given, ask.writer(asked.include), strict=asked.strict, explain=asked.explain)
        return BatchResponse(answers=bodies, mode=mode, version=index.version, ms=given.ms)

    @app.post(
        "/v1/route", summary="List the leaves that a question would visit, in the order of visit", tags=["search"]
    )
    async def route(asked: RouteRequest) -> RouteResponse:
        routes = await engine.route(ask.one(asked), ask.beam(asked.beam))
        return _routed(routes, index.version)

    @app.get("/v1/index", summary="Describe the index that is served", tags=["index"])
    async def the_index() -> IndexResponse:
        return index


def _routed(routes: Routes, version: int) -> RouteResponse:
    """The leaves of the one question that was routed."""
    order: Literal["probability", "density"] = "probability" if routes.log_density_QB is None else "density"
    return RouteResponse(leaves=_leaves(routes, 0), order=order, version=version)


def _leaves(routes: Routes, row: int) -> list[RoutedLeaf]:
    """The leaves of a question, in the order of visit."""
    leaves, density_QB = routes.leaves_QB[row].tolist(), routes.log_density_QB
    densities = [None] * len(leaves) if density_QB is None else density_QB[row].tolist()
    return [
        RoutedLeaf(leaf=leaf, log_prob=log_prob, log_density=log_density)
        for leaf, log_prob, log_density in zip(leaves, routes.log_prob_QB[row].tolist(), densities, strict=True)
        if leaf >= 0
    ]


async def _bodies(given: Answers, writer: ResultWriter, *, strict: bool, explain: bool) -> list[AnswerBody]:
    """Response bodies of answers; ApiError 503 where an answer is partial and the request is `strict`."""
    names = sorted({name for lost in given.lost for name in lost})
    if strict and names:
        raise ApiError(503, "shards_lost", f"strict: {', '.join(names)} did not answer; retry later", RETRY)
    parts = sum(len(answer.hits) + len(answer.leaves) for answer in given.answers)
    return await run_in_thread(parts, _all, given, writer, explain=explain)


def _all(given: Answers, writer: ResultWriter, *, explain: bool) -> list[AnswerBody]:
    return [
        _one(answer, lost, writer, _explained(answer, given, row, writer) if explain else None)
        for row, (answer, lost) in enumerate(zip(given.answers, given.lost, strict=True))
    ]


def _explained(answer: Answer, given: Answers, row: int, writer: ResultWriter) -> Explanation:
    routed = [] if given.routes is None else _leaves(given.routes, row)
    writer.spend(ROUTED_BYTES * len(routed))
    widened, rows = max(0, len(answer.leaves) - len(routed)), given.rows[row] if given.rows else 0
    return Explanation(leaves=routed, scanned=answer.scored, widened=widened, rows=rows)


def _one(answer: Answer, lost: list[str], writer: ResultWriter, explain: Explanation | None) -> AnswerBody:
    writer.spend(LEAF_BYTES * len(answer.leaves))
    results = [writer(hit) for hit in answer.hits]
    visited = Visits(leaves=answer.leaves, documents=answer.documents, fraction=answer.fraction, enough=answer.enough)
    return AnswerBody(
        results=results, visited=visited, partial=bool(lost), lost=lost, calls=answer.calls, explain=explain
    )


def _say_token(app: FastAPI) -> None:
    """Declare the token in the OpenAPI schema: FastAPI does not know of it, since the guard checks it, not a route."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        schema = plain()
        schemes = schema.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes["token"] = {"type": HTTPBearer().model.type_.value, "scheme": "bearer"}
        schema["security"] = [{"token": []}]
        for path in ("/healthz", "/readyz"):
            schema["paths"][path]["get"]["security"] = []
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
