"""The HTTP interface of a served index: paths, limits of requests, responses."""

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

import numpy as np
from fastapi import FastAPI, Header, Query, Response
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.middleware import Middleware

from rayhier.index.nodes import Node, NodeTable
from rayhier.search.request.hits import Answer, Hit
from rayhier.search.request.request import Queries, Request, Rules
from rayhier.search.routing.routes import Routes
from rayhier.search.segment.stored import Listing, Lookup, Stored
from rayhier.search.snapshot import Seen
from rayhier.serve.application import Application
from rayhier.serve.args import WriteLimits
from rayhier.serve.backend.changes import Written
from rayhier.serve.backend.engine import Answers, Engine
from rayhier.serve.backend.follower import Following
from rayhier.serve.backend.writer import Writers
from rayhier.serve.errors import RETRY, ApiError, invalid, unanswered
from rayhier.serve.http.bodies import (
    MOST,
    NAME_SHOWN,
    PARTS,
    AnswerBody,
    BatchRequest,
    BatchResponse,
    DeleteRequest,
    DocumentBody,
    DocumentResponse,
    ErrorBody,
    Explanation,
    Health,
    IndexResponse,
    ListRequest,
    ListResponse,
    NodeBody,
    NodesRequest,
    NodesResponse,
    Part,
    PutRequest,
    Result,
    RollbackRequest,
    RollbackResponse,
    RoutedLeaf,
    RouteRequest,
    RouteResponse,
    SearchRequest,
    SearchResponse,
    VersionBody,
    VersionsRequest,
    VersionsResponse,
    Visits,
    WrittenResponse,
)
from rayhier.serve.http.error_handlers import install
from rayhier.serve.http.guard import READING_POSTS, ROLLBACK, WITHOUT_SLOT, Guard, authorization, cross_origin
from rayhier.serve.http.inference import install_models
from rayhier.serve.http.page import install_page
from rayhier.serve.http.receive import json_route, most_values
from rayhier.serve.threads import begin, run_in_thread
from rayhier.storage.leaf_map import BUILT

if TYPE_CHECKING:  # imports Ray
    from rayhier.serve.backend.handles import WriterHandle

Writes: TypeAlias = "Writers | WriterHandle"
log = logging.getLogger("ray.serve")
NUMBERS = 100
"""Approximate bytes of a result in addition to its id and the included parts."""
LEAF_BYTES, ROUTED_BYTES = 8, 100
"""Approximate bytes of a leaf's number in an answer, and of a leaf in an explanation."""
KEY_LENGTH = 200
WAITED, LOOK_SECONDS = 2.0, 0.1
"""Largest number of seconds that a request waits for a change of the log, and seconds between two reads of storage
meanwhile. A change that a server has answered arrives sooner. So a request that waits longer names a change that does
not exist."""
READY_SECONDS = 1.0
"""Seconds for which the result of a readiness check is reused."""
Key = Annotated[str | None, Header(description="Key that lets you repeat a request without changing anything twice.")]
DESCRIPTIONS = {
    400: "The body is not UTF-8 text.",
    401: "Missing or wrong token.",
    403: "The token only allows reading, or the server does not write.",
    404: "No such path, no such document, or no such version.",
    405: "Wrong method for this path. The header Allow lists the right methods.",
    408: "The body did not arrive in time.",
    409: "Another model is served, or the version cannot be served again. The message says why.",
    413: "The body is too large, or holds too many values.",
    415: "The body is not application/json in UTF-8.",
    421: "The header Host names another server.",
    422: "The request is invalid. The message names the wrong value and what is allowed.",
    500: "A defect in the server. Its log has the error.",
    503: "Too many requests at once, or a deployment did not answer a `strict` request or a request for documents. "
    "Retry-After: seconds to wait.",
    504: "No answer within limits.seconds, or writes.seconds.",
}


def api(
    served: Application,
    writer: "Writes | None" = None,
    following: Following | None = None,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
    *,
    follows: bool = False,
) -> FastAPI:
    """Make the HTTP application of a served index. Without a `writer` no request may write.

    Each request waits first until `following` allows it to begin. `lifespan` runs with the application. With `follows`,
    requests may wait for changes of another server, because the index is followed even without a Writer.
    """
    args, tokens, limits = served.args, served.tokens, served.args.limits
    dimension, seconds = served.index().dimension, None if writer is None else args.writes.seconds
    guard = Middleware(Guard, tokens, limits, served.engine.admission, served.metrics, seconds, args.allowed_hosts)
    app = FastAPI(
        title="rayhier",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[*cross_origin(args.cors_origins), guard],
        lifespan=lifespan,
        responses={status: {"model": ErrorBody, "description": text} for status, text in DESCRIPTIONS.items()},
    )
    app.router.route_class = json_route(
        most_values(limits.max_batch, dimension),
        most_values(0 if writer is None else args.writes.max_documents, dimension),
        lambda scope, path: tokens.check(authorization(scope), writes=path not in READING_POSTS),
    )
    install(app)
    sight = _Sight(served.engine, limits.seconds, following, follows=follows or writer is not None)
    _health(app, served.engine, following)
    _searches(app, served, sight)
    _documents(app, served, sight)
    _writes(app, writer, args.writes, sight)
    _versions(app, served, sight, writer)
    _nodes(app, served, sight)
    install_models(app, served.engine, served.index, limits)
    install_page(app)
    if tokens.required:
        _say_token(app)
    return app


class _Sight:
    """Tells which state of the index requests see, and lets them wait for a change."""

    def __init__(self, engine: Engine, seconds: float, following: Following | None, *, follows: bool) -> None:
        self._engine, self._seconds, self._following, self._follows = engine, seconds, following, follows

    def now(self) -> Seen:
        return self._engine.view.seen

    def check_model(self, named: str | None) -> None:
        """Raise ApiError 409 if `named` is not the model that requests see now."""
        if named is not None and named != (served := self.now().model):
            message = f"model: got {named!r:.{NAME_SHOWN}}; allowed: {served}, which is served now"
            raise ApiError(409, "other_model", message)

    async def reach(self, number: int | None = None) -> None:
        """Wait until requests see all answered changes and change `number`. ApiError 504 if that takes too long."""
        if self._following is not None:
            await self._following()
        if number is None or (last := self.now().log) >= number:
            return
        if not self._follows:
            raise invalid(f"min_log: got {number}; allowed: at most {last}, because this server reads no later changes")
        try:
            with WITHOUT_SLOT.get()():
                async with asyncio.timeout(min(WAITED, 0.9 * self._seconds)):
                    await self._wait(number)
        except TimeoutError:
            message = f"min_log: got {number}, but the log is at {self.now().log}; allowed: the number of a change"
            raise ApiError(504, "timeout", message) from None

    async def _wait(self, number: int) -> None:
        look = None if self._following is None else LOOK_SECONDS
        while self.now().log < number:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(look):
                    await self._engine.changed()
            if self._following is not None:
                await self._following()


def _search(rules: Rules, body: SearchRequest | BatchRequest) -> tuple[str, Request]:
    """Convert a body to a request, by the rules of the served version. InputError (422) for a wrong body."""
    name, queries = _queries(rules, body)
    return name, rules.request(queries, body.k, body.beam, body.filter, body.mode, body.rerank, body.budget, name=name)


def _queries(rules: Rules, body: SearchRequest | BatchRequest | RouteRequest) -> tuple[str, Queries]:
    """Return the name of the body's key that holds the queries, and the queries."""
    name = next(name for name in type(body).query_keys() if getattr(body, name) is not None)
    given = getattr(body, name)
    queries = given if isinstance(body, BatchRequest) else [given]
    if name not in ("vector", "vectors"):
        return name, queries
    for vector in queries:
        rules.check_dimension(name, len(vector))
    return name, np.array(queries, dtype=np.float32)


class Readiness:
    """Checks which deployments do not answer, at most once per second. Callers at the same time share a check."""

    def __init__(self, unavailable: Callable[[], Coroutine[Any, Any, list[str]]]) -> None:
        self._unavailable, self._begun = unavailable, -READY_SECONDS
        self._answer: asyncio.Task[list[str]] | None = None

    async def __call__(self) -> list[str]:
        if self._answer is None or time.monotonic() - self._begun >= READY_SECONDS:
            self._answer = begin(self._unavailable())  # if the first caller leaves, others still wait for the result
            self._begun = time.monotonic()
        return await asyncio.shield(self._answer)


def _health(app: FastAPI, engine: Engine, following: Following | None) -> None:
    ready = Readiness(engine.unavailable)

    @app.get("/healthz", summary="Check that the server is up", tags=["health"])
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/readyz",
        summary="Check that every shard group answers a search, and the cross-encoder",
        response_model=Health,
        responses={503: {"model": Health, "description": "Some deployments do not answer. `lost` names them."}},
        tags=["health"],
    )
    async def readyz() -> JSONResponse:
        lost = await ready()
        body = {"ready": not lost, "lost": [*lost, *([] if following is None else following.lost)]}
        return JSONResponse(body, 503 if lost else 200, RETRY if lost else None)

    for path, answer in {"/healthz": healthz, "/readyz": readyz}.items():
        app.head(path, include_in_schema=False)(answer)  # load balancers send HEAD


def _searches(app: FastAPI, served: Application, sight: _Sight) -> None:
    engine, metrics = served.engine, served.metrics

    def logged(name: str, request: Request) -> Request:
        """Return the request, after a log entry for each text if `log_queries` is set."""
        if served.args.log_queries and not isinstance(request.queries, np.ndarray):
            for text in request.queries:
                log.info("%s: %r", name, text)
        return request

    async def answered(body: SearchRequest | BatchRequest) -> tuple[Request, Answers, list[AnswerBody]]:
        await sight.reach(body.min_log)
        sight.check_model(body.model)
        request = logged(*_search(engine.view.rules, body))  # the search below begins with the same view
        outcome = await engine.search(request)
        if body.explain:
            await engine.weigh(outcome.routes)
        if metrics is not None:
            calls = sum(answer.calls or 0 for answer in outcome.answers)
            metrics.searched(outcome.ms, [answer.documents for answer in outcome.answers], outcome.lost, calls)
        names = sorted({name for lost in outcome.lost for name in lost})
        if body.strict and names:
            raise unanswered(f"strict: {', '.join(names)} did not answer. Retry later")
        writer = _AnswerWriter(outcome, body.include, served.args.limits.max_answer_bytes, explain=body.explain)
        parts = sum(len(answer.hits) + len(answer.leaves) for answer in outcome.answers)
        return request, outcome, await run_in_thread(parts, writer.answers)

    @app.post("/v1/search", summary="Find documents", tags=["search"], response_model=SearchResponse)
    async def search(body: SearchRequest) -> Response:
        request, outcome, (answer,) = await answered(body)
        seen = asdict(outcome.seen)
        return _sent(SearchResponse(**dict(answer), mode=request.mode, **seen, ms=outcome.ms))

    @app.post(
        "/v1/search:batch",
        summary="Find documents for several queries",
        tags=["search"],
        response_model=BatchResponse,
    )
    async def batch(body: BatchRequest) -> Response:
        request, outcome, answers = await answered(body)
        seen = asdict(outcome.seen)
        return _sent(BatchResponse(answers=answers, mode=request.mode, **seen, ms=outcome.ms))

    @app.post("/v1/route", summary="List the leaves that a query would visit, in the order of visit", tags=["search"])
    async def route(body: RouteRequest) -> RouteResponse:
        await sight.reach()
        sight.check_model(body.model)
        seen, (name, queries) = sight.now(), _queries(engine.view.rules, body)  # the routing below uses the same view
        routes = await engine.route(logged(name, engine.view.rules.route(queries, body.beam, name)))
        await engine.weigh(routes)
        order: Literal["probability", "density"] = "probability" if routes.log_densities is None else "density"
        return RouteResponse(leaves=_leaves(routes, 0), order=order, **asdict(seen))

    @app.get("/v1/index", summary="Describe the index that is served", tags=["index"])
    async def the_index() -> IndexResponse:
        await sight.reach()
        return served.index()


def _documents(app: FastAPI, served: Application, sight: _Sight) -> None:
    most_bytes = served.args.limits.max_answer_bytes

    async def read(
        request: HttpRequest, piece: Lookup | Listing, min_log: int | None
    ) -> tuple[list[Stored], dict[str, Any]]:
        _check_utf_8(request)
        await sight.reach(min_log)
        seen = asdict(sight.now())  # the read below begins with the same state
        documents, lost = await served.engine.documents(piece)
        # Passages of a document may lie in several groups.
        whole = isinstance(piece, Lookup) and bool(documents) and documents[0].passages is None
        if lost and not whole:
            raise unanswered(f"{', '.join(lost)} did not answer. Retry later")
        return documents, seen

    @app.get(
        "/v1/documents",
        summary="List documents in the order of their ids",
        tags=["documents"],
        response_model=ListResponse,
    )
    async def listed(request: HttpRequest, page: Annotated[ListRequest, Query()]) -> Response:
        # An additional document shows if another page follows.
        documents, seen = await read(request, Listing(page.after, page.limit + 1), page.min_log)
        shown = await run_in_thread(len(documents), _within, documents[: page.limit], most_bytes)
        follows = shown[-1].id if len(documents) > len(shown) else None
        return _sent(ListResponse(documents=shown, next=follows, **seen))

    @app.get(
        "/v1/documents/{document_id:any_text}",
        summary="Read a document",
        tags=["documents"],
        response_model=DocumentResponse,
    )
    async def document(
        request: HttpRequest, document_id: str, min_log: Annotated[int | None, Query(ge=0, le=MOST)] = None
    ) -> Response:
        documents, seen = await read(request, Lookup((document_id,)), min_log)
        if not documents:
            message = f"id: got {document_id[:NAME_SHOWN]!r}; allowed: the id of a document in the index"
            raise ApiError(404, "no_document", message)
        (body,) = _within(documents, most_bytes)
        return _sent(DocumentResponse(**dict(body), **seen))


def _writes(app: FastAPI, writer: "Writes | None", limits: WriteLimits, sight: _Sight) -> None:
    def allowed(name: str, count: int) -> Writes:
        writes = _writing(writer)
        if count > limits.max_documents:
            raise invalid(f"{name}: got {count}; allowed: 1 to {limits.max_documents}, writes.max_documents")
        return writes

    @app.put(
        "/v1/documents",
        summary="Write documents. They replace documents with the same ids, unless `upsert` is false",
        tags=["documents"],
        response_model=WrittenResponse,
    )
    async def put(request: HttpRequest, body: PutRequest, idempotency_key: Key = None) -> Response:
        writes = allowed("documents", len(body.documents))
        documents = [dict(document) for document in body.documents]
        digest = hashlib.sha256(await request.body()).hexdigest()
        sight.check_model(body.model)
        return _told(await writes.put(documents, _key(idempotency_key), digest, upsert=body.upsert))

    @app.delete(
        "/v1/documents", summary="Delete documents by their ids", tags=["documents"], response_model=WrittenResponse
    )
    async def delete(request: HttpRequest, body: DeleteRequest, idempotency_key: Key = None) -> Response:
        writes = allowed("ids", len(body.ids))
        digest = hashlib.sha256(await request.body()).hexdigest()
        return _told(await writes.delete(body.ids, _key(idempotency_key), digest))


def _writing(writer: "Writes | None") -> Writes:
    if writer is None:
        raise ApiError(403, "forbidden", "this server does not write; allowed: a server with a write_token_file")
    return writer


def _versions(app: FastAPI, served: Application, sight: _Sight, writer: "Writes | None") -> None:
    @app.get(
        "/v1/versions",
        summary="List the versions of the index, the newest first",
        tags=["index"],
        response_model=VersionsResponse,
    )
    async def listed(page: Annotated[VersionsRequest, Query()]) -> Response:
        await sight.reach()
        manifests = await asyncio.to_thread(
            served.versions, page.before, page.limit + 1
        )  # an additional version shows if another page follows
        newest, shown = sight.now().version, manifests[: page.limit]
        known = set(VersionBody.model_fields) - {"served"}
        bodies = [VersionBody(**each.model_dump(include=known), served=each.version == newest) for each in shown]
        return _sent(VersionsResponse(versions=bodies, next=shown[-1].version if len(manifests) > len(shown) else None))

    @app.post(
        ROLLBACK,
        summary="Publish an older version again as the newest one, and serve it",
        tags=["index"],
        response_model=RollbackResponse,
    )
    async def rollback(body: RollbackRequest, idempotency_key: Key = None) -> Response:
        outcome = await _writing(writer).rollback(body.version, _key(idempotency_key))
        return _sent(RollbackResponse(documents=outcome.documents, **asdict(outcome.seen)))


def _told(written: Written) -> Response:
    return _sent(WrittenResponse(documents=written.documents, replaced=written.replaced, **asdict(written.seen)))


def _key(key: str | None) -> str | None:
    """Return an idempotency key unchanged. ApiError 422 unless the key is at most 200 printable ASCII characters."""
    if key is not None and not re.fullmatch(f"[!-~]{{1,{KEY_LENGTH}}}", key):
        raise invalid(
            f"Idempotency-Key: got {key[:NAME_SHOWN]!r}; allowed: 1 to {KEY_LENGTH} printable ASCII characters"
        )
    return key


def _nodes(app: FastAPI, served: Application, sight: _Sight) -> None:
    most_bytes = served.args.limits.max_answer_bytes

    def read(wanted: NodesRequest) -> NodesResponse:
        (table, version), seen = served.nodes(), sight.now()
        if wanted.leaf:
            chosen, total = table.leaves(wanted.leaf), len(wanted.leaf)
        else:
            chosen, total = table.below(wanted.below or "0:0", wanted.limit)
        bodies = [_node(node, table) for node in chosen]
        size = sum(len(text.encode()) for body in bodies for text in (*body.keywords, *body.documents))
        if size + NUMBERS * len(bodies) > most_bytes:
            what = f"answer: got more than {most_bytes} bytes, limits.max_answer_bytes"
            raise _answer_too_large(f"{what}; allowed: ask for fewer nodes")
        about = {**asdict(seen), "version": version}
        return NodesResponse(nodes=bodies, total=total, levels=table.levels, described=BUILT, **about)

    @app.get(
        "/v1/nodes",
        summary="Describe leaves, or the children of a node of the tree",
        tags=["index"],
        response_model=NodesResponse,
    )
    async def the_nodes(wanted: Annotated[NodesRequest, Query()]) -> Response:
        return _sent(await asyncio.to_thread(read, wanted))


def _node(node: Node, table: NodeTable) -> NodeBody:
    return NodeBody(
        name=node.name,
        parent=f"{node.level - 1}:{node.parent}",
        leaf=node.number if node.level == table.levels else None,
        size=node.size,
        children=table.children(node),
        keywords=node.keywords,
        documents=node.documents,
    )


def _check_utf_8(request: HttpRequest) -> None:
    """Raise ApiError 422 if the path or the query of a request is not UTF-8."""
    for part, name in {"raw_path": "id", "query_string": "after"}.items():
        try:
            unquote_to_bytes(request.scope.get(part) or b"").decode()
        except UnicodeDecodeError:
            raise invalid(f"{name}: got bytes that are not UTF-8; allowed: UTF-8") from None


def _within(documents: Sequence[Stored], most: int) -> list[DocumentBody]:
    bodies, size = list[DocumentBody](), 0
    for stored in documents:
        texts = [stored.id, stored.title, stored.text, *(stored.passages or [])]
        size += NUMBERS + sum(len(part.encode()) for part in texts) + len(json.dumps(stored.fields, default=str))
        if size > most and not bodies:
            what = f"{stored.id[:NAME_SHOWN]}: got a document of {size} bytes"
            raise _answer_too_large(f"{what}; allowed: {most}, limits.max_answer_bytes")
        if size > most:
            break
        bodies.append(DocumentBody(**asdict(stored)))
    return bodies


class _AnyText(PathConvertor):
    """A part of a path that may be any text, with slashes and line ends."""

    regex = r"[\s\S]+"


register_url_convertor("any_text", _AnyText())


def _sent(body: BaseModel) -> Response:
    """Make a response from a checked pydantic model, which FastAPI would check a second time."""
    return Response(body.model_dump_json(), media_type="application/json")


def _leaves(routes: Routes, row: int) -> list[RoutedLeaf]:
    leaves, density_QB = routes.leaves_QB[row].tolist(), routes.log_densities
    densities = [None] * len(leaves) if density_QB is None else density_QB[row].tolist()
    return [
        RoutedLeaf(leaf=leaf, log_prob=log_prob, log_density=log_density)
        for leaf, log_prob, log_density in zip(leaves, routes.log_probs[row].tolist(), densities, strict=True)
        if leaf >= 0
    ]


class _AnswerWriter:
    """Makes the body of a response, with the parts `include` of documents (None: all). ApiError beyond `most` bytes."""

    def __init__(self, outcome: Answers, include: Sequence[Part] | None, most: int, *, explain: bool) -> None:
        self._outcome, self._include, self._explain = outcome, PARTS if include is None else include, explain
        self._most, self._left = most, most

    def answers(self) -> list[AnswerBody]:
        return [self._answer(row, answer) for row, answer in enumerate(self._outcome.answers)]

    def _answer(self, row: int, answer: Answer) -> AnswerBody:
        self._spend(LEAF_BYTES * len(answer.leaves))
        lost = self._outcome.lost[row]
        return AnswerBody(
            results=[self._result(hit) for hit in answer.hits],
            visited=Visits(
                leaves=answer.leaves, documents=answer.documents, fraction=answer.fraction, enough=answer.enough
            ),
            partial=bool(lost),
            lost=lost,
            calls=answer.calls,
            explain=self._explanation(row, answer) if self._explain else None,
        )

    def _explanation(self, row: int, answer: Answer) -> Explanation:
        routed = _leaves(self._outcome.routes, row)
        self._spend(ROUTED_BYTES * len(routed))
        widened = max(0, len(answer.leaves) - len(routed))
        return Explanation(leaves=routed, scanned=answer.scored, widened=widened, rows=self._outcome.rows[row])

    def _result(self, hit: Hit) -> Result:
        title, text, fields = (getattr(hit, part) if part in self._include else None for part in PARTS)
        size = NUMBERS + sum(len(part.encode()) for part in (hit.id, title or "", text or ""))
        self._spend(size + (len(json.dumps(fields, default=str)) if fields else 0))
        return Result(
            id=hit.id, score=hit.score, leaf=hit.leaf, title=title, text=text, fields=fields, estimated=hit.estimated
        )

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            allowed = "ask for fewer results, fewer leaves, fewer queries at once, or fewer parts by include"
            what = f"answer: got more than {self._most} bytes, limits.max_answer_bytes"
            raise _answer_too_large(f"{what}; allowed: {allowed}")


def _answer_too_large(message: str) -> ApiError:
    return ApiError(422, "answer_too_large", message)


def _say_token(app: FastAPI) -> None:
    """Declare the token in the OpenAPI schema. FastAPI does not know the token, because the guard checks the token."""
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
