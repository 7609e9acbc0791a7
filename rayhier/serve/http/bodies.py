"""Bodies of HTTP requests and responses."""

import base64
import binascii
import sys
from array import array
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rayhier.spec.corpus import FieldType
from rayhier.spec.encoder import Similarity
from rayhier.spec.query import check_text, check_unicode
from rayhier.spec.search import Mode

BYTES = 4
"""Bytes of a float32 number."""


def pack(numbers: Iterable[float]) -> str:
    """Return numbers as base64 of float32. OverflowError if a number is too large, TypeError if a value is no number.

    >>> pack([1, 0.5])
    'AACAPwAAAD8='
    """
    return base64.b64encode(_little(array("f", numbers)).tobytes()).decode()


def unpack(text: str) -> "array[float]":
    """Return the numbers of a base64 text. ValueError if `text` is not base64 of at least one float32.

    >>> unpack("AACAPwAAAD8=").tolist()
    [1.0, 0.5]
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data or len(data) % BYTES:
        raise ValueError(f"got a text of {len(text)} characters; allowed: numbers, or base64 of float32 numbers")
    numbers = array("f")
    numbers.frombytes(data)
    return _little(numbers)


def _little(numbers: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


BOUND = 1e6
"""Largest absolute value of a number in a vector, so that inner products stay within float32."""

MOST = 1_000_000_000
"""Largest count that any request may name. A server's own limits are lower."""

MOST_WRITTEN = 100_000
"""Largest number of documents, or ids, in any request to write. A server's own limit is lower."""

NAME_SHOWN = 80
"""Largest number of characters of an unknown name that a message repeats."""


Query = Annotated[str, AfterValidator(check_text)]
Vector = Annotated[
    list[Annotated[float, Field(ge=-BOUND, le=BOUND, allow_inf_nan=False)]],
    Field(
        min_length=1,
        fail_fast=True,
        description="Vector made by the index's encoder. If similarity is cosine, it must have unit length.",
    ),
]


def _unpacked(value: Any, numbers: ValidatorFunctionWrapHandler) -> Any:
    """Return a list of numbers, or the numbers of a base64 text as an array. ValueError if `value` is neither."""
    return unpack(value) if isinstance(value, str) else numbers(value)


PackedVector = Annotated[
    Vector,
    WrapValidator(_unpacked),
    WithJsonSchema(
        {
            "anyOf": [{"type": "array", "items": {"type": "number"}, "minItems": 1}, {"type": "string"}],
            "description": "Vector made by the index's encoder: numbers, or base64 of the numbers as float32, "
            "little-endian. If similarity is cosine, it must have unit length.",
        }
    ),
]
Count = Annotated[int, Field(ge=1, le=MOST)]
Log = Annotated[int, Field(ge=0, le=MOST)]
Part = Literal["title", "text", "fields"]
PARTS: tuple[Part, ...] = ("title", "text", "fields")
"""Parts of a document that an answer may contain."""
Include = Annotated[list[Part], Field(max_length=len(PARTS), fail_fast=True)]
FilterBody = Annotated[
    dict[str, Any],
    Field(
        description="Only documents whose declared fields match are results. More leaves are visited until enough "
        "documents match. `GET /v1/index` names the fields.",
        examples=[{"year": {"gte": 2019, "lt": 2022}, "or": [{"lang": {"in": ["en", "de"]}}, {"not": {"open": True}}]}],
    ),
]


class Body(BaseModel):
    """A part of a request or a response."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class _Page(Body):
    """A part of a request. If keys are unknown, the only error names the first of these keys."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, body: Any) -> Any:
        unknown = next((key for key in body if key not in cls.model_fields), None) if isinstance(body, dict) else None
        if unknown is not None:
            raise ValueError(f"got key {unknown[:NAME_SHOWN]!r}; allowed: {', '.join(cls.model_fields)}")
        return body


class RequestBody(_Page):
    """A part of a request's body. Values must have the exact types, without conversion."""

    model_config = ConfigDict(strict=True)


class _Request(RequestBody):
    @classmethod
    def query_keys(cls) -> list[str]:
        """Return the names of the first two fields (texts, vectors), of which a request has exactly one."""
        return list(cls.model_fields)[:2]

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        first, second = self.query_keys()
        names = [name for name in (first, second) if getattr(self, name) is not None]
        if len(names) != 1:
            raise ValueError(f"got {' and '.join(names) or 'neither'}; allowed: exactly one of {first}, {second}")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add to the schema that exactly one of text and vector is given. The other field may be null."""
        schema = handler.resolve_ref_schema(handler(core))
        first, second = cls.query_keys()
        null, given = {"type": "null"}, {"not": {"type": "null"}}
        schema["oneOf"] = [
            {"required": [name], "properties": {name: given, other: null}}
            for name, other in ((first, second), (second, first))
        ]
        return schema


class _OneQuery(_Request):
    query: Query | None = None
    """The query as text."""
    vector: Vector | None = None
    """The query's vector, encoded by the client."""


class _SearchOptions(RequestBody):
    k: Count | None = None
    """Number of results for each query. Default: `k` of `GET /v1/index`."""
    beam: Count | None = None
    """Largest number of leaves to visit for each query. Default: `beam` of `GET /v1/index`."""
    filter: FilterBody | None = None
    mode: Mode | None = None
    """Order of results: `dense` (by vectors), `bm25` (by words) or `hybrid` (by both). Default for texts: `mode` of
    `GET /v1/index`. Default for vectors: `dense`."""
    rerank: bool | None = None
    """True: a cross-encoder re-ranks the results. Default: true for texts if the index re-ranks, else false."""
    budget: Count | None = None
    """Largest number of documents that the cross-encoder reads for a query. Default: `budget` of `GET /v1/index`."""
    explain: bool = False
    """True: answers list the leaves that the router chose, with probabilities, and the number of rows scored."""
    include: Include | None = None
    """Parts of documents that answers contain. Other parts are null. Default: all."""
    strict: bool = False
    """True: answer 503 instead of a partial answer if a shard group or the cross-encoder does not answer."""
    min_log: Log | None = None
    """Number of a change of the log, from the change's answer. The server waits until answers include the change."""
    model: str | None = None
    """Fingerprint of the model that made a vector. The request is refused if another model is served. Default: any."""


class SearchRequest(_SearchOptions, _OneQuery):
    """A search for one query, as text or as a vector."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "how do I open a zip file", "k": 5}]})


class _Queries(_Request):
    queries: Annotated[list[Query], Field(min_length=1, fail_fast=True)] | None = None
    """The queries as texts."""
    vectors: Annotated[list[Vector], Field(min_length=1, fail_fast=True)] | None = None
    """The queries' vectors, encoded by the client."""


class BatchRequest(_SearchOptions, _Queries):
    """A search for several queries, all as texts or all as vectors."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"queries": ["open a zip file", "sort a list"], "k": 5}]})


class RouteRequest(_OneQuery):
    """A query to route. The answer lists the leaves that the query would visit, without searching them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "how do I open a zip file", "beam": 4}]})
    beam: Count | None = None
    """Largest number of leaves to list. Default: `beam` of `GET /v1/index`."""
    model: str | None = None
    """Fingerprint of the model that made a vector. The request is refused if another model is served. Default: any."""


class PutDocument(RequestBody):
    """A document to write."""

    id: str
    title: str | None = None
    text: str | None = None
    """Text of the document. Either the title or the text may be missing."""
    fields: dict[str, Any] = {}
    """Values of the fields that the corpus declares. A field that is missing has no value."""
    vector: PackedVector | None = None
    """The document's vector by the index's encoder. A request has vectors for all documents or for none. Null: the
    server encodes the document. As base64 of float32, a vector takes a quarter of the bytes and parses fastest."""


class PutRequest(RequestBody):
    """Documents to write, each id once. If a document is refused, nothing is changed."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"documents": [{"id": "howto.zip", "title": "Open a zip", "text": "Use zipfile.ZipFile."}]}]
        },
    )
    documents: Annotated[list[PutDocument], Field(min_length=1, max_length=MOST_WRITTEN, fail_fast=True)]
    model: str | None = None
    """Fingerprint of the model that made the vectors. If another model is served, the request fails. Default: any."""
    upsert: bool = True
    """True: documents replace documents with the same ids. False: the answer is 409 if an id is in the index."""


class DeleteRequest(RequestBody):
    """Ids of documents to delete. If an id is not in the index, nothing is changed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["howto.zip"]}]})
    ids: Annotated[
        list[Annotated[str, AfterValidator(check_unicode)]],
        Field(min_length=1, max_length=MOST_WRITTEN, fail_fast=True),
    ]


class SeenBody(Body):
    """The state of the index that an answer is from, or that a change made."""

    model: str
    """Fingerprint of the model."""
    version: int
    """Version of the index. After a rollback: the new version."""
    log: int
    """Number of the log's last change. An answer to a request with this `min_log` includes the change."""


class WrittenResponse(SeenBody):
    """A durable change, which every search that begins now sees."""

    documents: int
    """Number of documents written or deleted."""
    replaced: int
    """Number of written documents whose ids were in the index before."""


class DocumentBody(Body):
    """A document as the index holds it."""

    id: str
    title: str
    text: str
    passages: list[str] | None
    """Texts of the document's passages, in order. Null if the corpus is not cut into passages."""
    fields: dict[str, Any]
    """Values of the fields that the corpus declares."""
    first_leaves: list[int]
    """Best leaf of the document, or of each of its passages. A search may also find a document in its second leaf."""


class DocumentResponse(SeenBody, DocumentBody):
    """A document, and the version of the index that holds it."""


class ListRequest(_Page):
    """A page of the documents, in the order of their ids, which are compared byte by byte."""

    after: str = ""
    """Id after which the page begins: `next` of the previous page. Empty for the first page."""
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    """Largest number of documents of the page."""
    min_log: Log | None = None
    """Number of a change of the log. The answer waits until it includes the change."""


class ListResponse(SeenBody):
    """A page of the documents, in the order of their ids."""

    documents: list[DocumentBody]
    next: str | None
    """Value of `after` for the next page. Null if no document follows."""


class Result(Body):
    """A document that is a result of a search."""

    id: str
    """Id of the document. If the corpus is cut into passages, the id of the document that the passage is from."""
    score: float
    """Score by which results are ordered. In mode `dense`: the inner product of the query's and the document's vectors,
    which is their cosine if similarity is cosine. In other modes: BM25, or the fusion of both. If results are
    re-ranked: the cross-encoder's score."""
    leaf: int
    """Number of the leaf in which the document was scored."""
    title: str | None
    """Title of the document. Null if the request does not include titles."""
    text: str | None
    """Text of the document, or of its best passage. Null if the request does not include texts."""
    fields: dict[str, Any] | None
    """Values of the fields that the corpus declares. Null if the request does not include fields."""
    estimated: bool
    """True if the score was estimated from the scores of documents that the cross-encoder read."""


class Visits(Body):
    """Leaves visited and documents scored for a query."""

    leaves: list[int]
    """Numbers of the leaves, in the order of visit."""
    documents: int
    """Number of distinct documents scored. In a partial answer the number may be too low."""
    fraction: float
    """Number of distinct documents scored, as a fraction of the corpus, 0 to 1."""
    enough: bool
    """True if there are `k` results. False if the leaves that may be visited hold fewer matching documents."""


class RoutedLeaf(Body):
    """A leaf that a query would visit."""

    leaf: int
    log_prob: float
    """Natural logarithm of the probability that the router gives the leaf for this query."""
    log_density: float | None
    """Natural logarithm of the leaf's density: `log_prob` minus the logarithm of the leaf's number of documents. Null
    if the router does not know the leaves' sizes."""


class Explanation(Body):
    """Leaves that the router chose for a query, and rows that were scored for its answer."""

    leaves: list[RoutedLeaf]
    """Leaves that the router chose, in the order of visit, before a filter made the query visit more."""
    scanned: int
    """Number of rows scored. A document in two of the leaves counts twice. With a filter, only matching rows count.
    Matching rows count again each time that the search goes on to more leaves."""
    widened: int
    """Number of leaves visited in addition to `leaves`, because too few documents matched the filter."""
    rows: int
    """Number of rows in the visited leaves, with those that the filter excludes. 0 if no leaf is visited."""


class AnswerBody(Body):
    """The results of a query, best first, and their cost."""

    results: list[Result]
    visited: Visits
    partial: bool
    """True if results may be missing, because a shard group or the cross-encoder did not answer."""
    lost: list[str]
    """Names of the shard groups that did not answer, and `reranker` if the cross-encoder did not."""
    calls: int | None
    """Number of documents that the cross-encoder read. Null if the answer is not re-ranked."""
    explain: Explanation | None
    """Leaves and rows behind the answer. Null unless the request has `explain`."""


RESULT: JsonDict = {
    "id": "d7",
    "score": 0.7263,
    "leaf": 79,
    "title": "Title",
    "text": "A text.",
    "fields": {},
    "estimated": False,
}
EXAMPLE: JsonDict = {
    "results": [RESULT],
    "visited": {"leaves": [79, 145], "documents": 83, "fraction": 0.0246, "enough": True},
    "calls": None,
    "explain": None,
    "partial": False,
    "lost": [],
    "mode": "dense",
    "model": "94b18af9b7a1",
    "version": 1,
    "log": 0,
    "ms": {"queue": 0.1, "encode": 6.1, "route": 0.4, "scan": 5.2, "total": 12.0},
}


class SearchResponse(SeenBody, AnswerBody):
    """The results of a query, the version of the index, and the milliseconds of each step."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})
    ms: dict[str, float]
    """Milliseconds by step: queue (waiting for the encoder), encode, route, scan (including its queue), total."""
    mode: Mode
    """Order of the results: `dense` (by vectors), `bm25` (by words) or `hybrid` (by both)."""


class BatchResponse(SeenBody):
    """An answer for each query, in the order of the request."""

    answers: list[AnswerBody]
    ms: dict[str, float]
    """Milliseconds for the whole batch, by step: queue (waiting for the encoder), encode, route, scan, total."""
    mode: Mode
    """Order of the results: `dense` (by vectors), `bm25` (by words) or `hybrid` (by both)."""


class RouteResponse(SeenBody):
    """Leaves that a query would visit, in the order of visit."""

    leaves: list[RoutedLeaf]
    order: Literal["density", "probability"]
    """Value by which leaves are ordered: `density` if the router knows the leaves' sizes, else `probability`. The
    density of a leaf is its probability of an answer, divided by its number of documents."""


class NodesRequest(_Page):
    """Nodes of the tree: some leaves, or the children of a node."""

    leaf: Annotated[list[int], Field(max_length=1_000)] = []
    """Numbers of leaves, in the order of the answer. Repeat the parameter for several leaves."""
    below: Annotated[str, Field(pattern="^[0-9]{1,9}:[0-9]{1,9}$")] | None = None
    """Name (LEVEL:NUMBER) of the node whose children are listed. Default without `leaf`: the root, 0:0."""
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    """Largest number of children that are listed."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        """Raise ValueError if both leaves and a node are named."""
        if self.leaf and self.below is not None:
            raise ValueError("got leaf and below; allowed: one of them")
        return self


class NodeBody(Body):
    """A node of the tree: a leaf, or all leaves below an inner node."""

    name: str
    """LEVEL:NUMBER. Level 1 is below the root."""
    parent: str
    """Name of the node above. The root is 0:0."""
    leaf: int | None
    """Number of the leaf. Null for an inner node."""
    size: int
    """Number of rows below the node. A document in two leaves has two rows."""
    children: int
    """Number of children that have documents."""
    keywords: list[str]
    """Words that are more frequent in the node's documents than in all others, the most distinctive first."""
    documents: list[str]
    """Ids of a few documents that most probably lie in the node."""


class NodesResponse(SeenBody):
    """Nodes of the tree: leaves in the order of the request, or children of a node, the largest first."""

    nodes: list[NodeBody]
    total: int
    """Number of all nodes that the request names. `nodes` may hold only the first of these nodes."""
    levels: int
    """Number of levels of the tree. The nodes of the last level are the leaves."""
    described: int
    """Version of the index that `keywords` and `documents` are from. Sizes are from `version`."""


class VersionsRequest(_Page):
    """A page of the versions, the newest first."""

    before: Annotated[int, Field(ge=1, le=MOST)] | None = None
    """Number before which the page begins: `next` of the previous page. Left out for the first page."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    """Largest number of versions of the page."""


class VersionBody(Body):
    """A version of the index."""

    version: int
    parent: int | None
    """Number of the previous version. Null for the build."""
    change: str
    """Operation: build, add, upsert, delete, fold, maintain, pack, compact, rollback, carry or embed."""
    at: float
    """Time at which the version was made, in seconds since 1970."""
    documents: int
    """Number of documents in the version's files. If the corpus is cut into passages, number of passages."""
    log: int
    """Number of the last change of the change log that the version's files hold."""
    restored: int | None
    """Number of the version whose content a rollback published again. Null if no rollback made this version."""
    served: bool
    """True for the version that requests read now."""


class VersionsResponse(Body):
    """A page of the versions, the newest first. Versions with a damaged manifest are left out."""

    versions: list[VersionBody]
    next: int | None
    """Value of `before` for the next page. Null if no version follows."""


class RollbackRequest(RequestBody):
    """The version whose content is published again as the newest one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"version": 3}]})
    version: Count


class RollbackResponse(SeenBody):
    """A version that a rollback published, and that every search that begins now reads."""

    documents: int
    """Number of documents of the version."""


class Drift(Body):
    """How far the leaf files of the served version have drifted from what its model was trained on."""

    imbalance: float
    """Imbalance of leaf sizes, which is 1 if all leaves have the same size."""
    void: float
    """Share of stored rows that belong to removed documents."""
    added: float
    """Share of stored rows that were added after the build or the last compaction."""
    log_prob: float
    """Mean log-probability of a document's best leaf, at the build or the last compaction."""
    added_log_prob: float | None
    """Mean log-probability of the best leaf, over documents added after the build or the last
    compaction. Null if none was added."""
    advice: list[str]
    """Advice to compact or to train again, with reasons. Empty if the index needs neither."""


class RecallServed(Body):
    """Recall as served: how well searches agree with exact searches for the same queries."""

    mean: float
    """Mean share of the exact best documents, at most ten, that searches found by vectors."""
    low: float
    """Lower end of the mean's 95% interval."""
    high: float
    """Upper end of the mean's 95% interval."""
    queries: int
    """Number of the newest queries that were audited with the served model, at most 1,000."""
    since: str
    """Time of the oldest audited query that counts, in UTC (ISO 8601)."""


class IndexResponse(Body):
    """A description of the index that is served."""

    name: str
    version: int
    log: int
    """Number of the last change of the change log that answers include."""
    index: str
    """Fingerprint of the index: a hash of everything that the index depends on."""
    model: str
    """Fingerprint of the model: a hash of everything that the model depends on."""
    refused: str | None
    """Why a newer model or index, which `current.json` of the workdir names, is not served. Null if it is served."""
    router: str
    """Type of the router: ehi, hce, learned_ivf or retreever."""
    documents: int
    """Number of documents, or of passages, as `unit` says."""
    unit: Literal["documents", "passages"]
    """What `documents` counts: passages if the corpus is cut into passages."""
    leaves: int
    """Number of leaves."""
    leaves_per_document: int
    """Largest number of leaves in which a document lies."""
    shards: int
    """Number of files that hold the rows."""
    groups: list[str]
    """Names of the shard groups, the deployments that divide the leaves."""
    dimension: int
    """Length of a vector."""
    similarity: Similarity
    """Similarity of vectors: `cosine`, for which a query's vector must have unit length, or `dot` (inner product)."""
    precision: str
    """Number format in which queries are encoded."""
    fields: dict[str, FieldType]
    """Fields that the corpus declares, and that filters may name, with their types."""
    k: int
    """Number of results for a query that gives no `k`."""
    rerank: str
    """Method of re-ranking: none, rnr (the best documents), axn or adacur (documents chosen in rounds)."""
    budget: int
    """Number of documents that the cross-encoder reads for a query. 0 if results are not re-ranked."""
    pool: int | Literal["leaves", "all"] | None
    """Documents of which the cross-encoder reads some. `leaves`: all in the leaves that a query visits. A number: at
    most so many, the best in these leaves. `all`: all documents, so that queries visit all leaves. Null if results
    are not re-ranked."""
    how: Literal["leaves", "level"]
    """`leaves` if a query visits leaves. `level` if all documents are compared, by a level of ReTreever's tree."""
    mode: Mode
    """Order of results for a text without `mode`: `dense` (by vectors), `bm25` (by words) or `hybrid` (by both)."""
    modes: list[Mode]
    """Modes that a query may ask for."""
    weight: float | None
    """Weight of BM25 in mode `hybrid`. Null if there is no such mode, or ranks are fused."""
    beam: int
    """Largest number of leaves visited for a query that gives neither `k` nor `beam`."""
    recall: float | None
    """Mean share of the exact best `k` documents that dev queries find. Null if dev queries did not choose `beam`."""
    drift: Drift
    recall_served: RecallServed | None
    """Recall as this server, or one of its ingresses, measured it. Null until a query was audited."""
    limits: dict[str, int | float]
    """Limits of requests by name, such as `max_k`, the most results for a query."""


class Health(Body):
    """State of a server. A server is ready if every shard group and the cross-encoder, if it has one, answer."""

    ready: bool
    lost: list[str]
    """Names of the shard groups that do not answer, and `reranker` if the cross-encoder does not. The list has
    `writer` if the Writer does not answer, though searches go on without the Writer."""


class ErrorDetail(Body):
    """The code and the message of an error."""

    code: str
    """Kind of error, for programs."""
    message: str
    """The value that was wrong and the values allowed, for people."""


class ErrorBody(Body):
    """Body of every error, except for `GET /readyz`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": {"code": "invalid", "message": "k: got 5000; allowed: 1 to 1000"}}]}
    )
    error: ErrorDetail
