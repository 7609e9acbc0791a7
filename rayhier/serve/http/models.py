"""Bodies of requests and responses."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rayhier.spec.corpus import FieldType
from rayhier.spec.encoder import Similarity
from rayhier.spec.query import check_text
from rayhier.spec.search import Mode

BOUND = 1e6
"""Largest absolute value of a number in a vector: inner products then stay within float32."""

MOST = 1_000_000_000
"""Largest count that any request may name; a server's own limits are lower."""

NAME_SHOWN = 80
"""Most characters of an unknown name that a message repeats."""


Query = Annotated[str, AfterValidator(check_text)]
Vector = Annotated[
    list[Annotated[float, Field(ge=-BOUND, le=BOUND, allow_inf_nan=False)]],
    Field(
        min_length=1,
        fail_fast=True,
        description="Vector made by the index's encoder; of unit length where similarity is cosine.",
    ),
]
Count = Annotated[int, Field(ge=1, le=MOST)]
Part = Literal["title", "text", "fields"]
PARTS: tuple[Part, ...] = ("title", "text", "fields")
"""Parts of a document that an answer shows."""
Include = Annotated[list[Part], Field(max_length=len(PARTS), fail_fast=True)]
FilterBody = Annotated[
    dict[str, Any],
    Field(
        description="Only documents whose declared fields are like this; more leaves are visited until enough match. "
        "`GET /v1/index` names the fields.",
        examples=[{"year": {"gte": 2019, "lt": 2022}, "or": [{"lang": {"in": ["en", "de"]}}, {"not": {"open": True}}]}],
    ),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class _Request(_Body):
    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        unknown = [key for key in given if key not in cls.model_fields] if isinstance(given, dict) else []
        if unknown:
            raise ValueError(f"got key {unknown[0][:NAME_SHOWN]!r}; allowed: {', '.join(cls.model_fields)}")
        return given

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        """Require either text or vectors, not both."""
        first, second = list(type(self).model_fields)[:2]
        given = [name for name in (first, second) if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"got {' and '.join(given) or 'neither'}; allowed: exactly one of {first}, {second}")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Say in the schema too that exactly one of the two is given; the other may stand there as null."""
        schema = handler.resolve_ref_schema(handler(core))
        pair = list(cls.model_fields)[:2]
        schema["oneOf"] = [
            {
                "required": [given],
                "properties": {name: {"not": {"type": "null"}} if name == given else {"type": "null"} for name in pair},
            }
            for given in pair
        ]
        return schema


class SearchRequest(_Request):
    """One query, as text or as a vector."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "how do I open a zip file", "k": 5}]})
    query: Query | None = None
    """The query as text."""
    vector: Vector | None = None
    """The query's vector, encoded by the client."""
    k: Count | None = None
    """Number of results; default: `k` of `GET /v1/index`."""
    beam: Count | None = None
    """Most leaves to visit; default: `beam` of `GET /v1/index`."""
    filter: FilterBody | None = None
    mode: Mode | None = None
    """What orders results: `dense` vectors, `bm25`, `hybrid`: both. Default: `mode` of `GET /v1/index`; of vectors,
    `dense`."""
    rerank: bool | None = None
    """True: a cross-encoder re-ranks the results; default: as `rerank` of `GET /v1/index` says, of texts."""
    budget: Count | None = None
    """Most documents that the cross-encoder reads for a query; default: `budget` of `GET /v1/index`."""
    explain: bool = False
    """True: the answer lists the leaves routed to with their probabilities, and the rows scored."""
    include: Include | None = None
    """Parts of its documents that the answer shows; the others are null. Default: all."""
    strict: bool = False
    """Answer 503 instead of a partial answer where a shard group or the cross-encoder does not answer."""


class BatchRequest(_Request):
    """Several queries, all as texts or all as vectors."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"queries": ["open a zip file", "sort a list"], "k": 5}]})
    queries: Annotated[list[Query], Field(min_length=1, fail_fast=True)] | None = None
    """The queries as texts."""
    vectors: Annotated[list[Vector], Field(min_length=1, fail_fast=True)] | None = None
    """The queries' vectors, encoded by the client."""
    k: Count | None = None
    """Number of results for each query; default: `k` of `GET /v1/index`."""
    beam: Count | None = None
    """Most leaves to visit for each query; default: `beam` of `GET /v1/index`."""
    filter: FilterBody | None = None
    mode: Mode | None = None
    """What orders results: `dense` vectors, `bm25`, `hybrid`: both. Default: `mode` of `GET /v1/index`; of vectors,
    `dense`."""
    rerank: bool | None = None
    """True: a cross-encoder re-ranks the results; default: as `rerank` of `GET /v1/index` says, of texts."""
    budget: Count | None = None
    """Most documents that the cross-encoder reads for a query; default: `budget` of `GET /v1/index`."""
    explain: bool = False
    """True: the answer lists the leaves routed to with their probabilities, and the rows scored."""
    include: Include | None = None
    """Parts of its documents that the answer shows; the others are null. Default: all."""
    strict: bool = False
    """Answer 503 instead of a partial answer where a shard group or the cross-encoder does not answer."""


class RouteRequest(_Request):
    """One query to route: which leaves it would visit, without searching them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "how do I open a zip file", "beam": 4}]})
    query: Query | None = None
    """The query as text."""
    vector: Vector | None = None
    """The query's vector, encoded by the client."""
    beam: Count | None = None
    """Most leaves to list; default: `beam` of `GET /v1/index`."""


class Result(_Body):
    """A document that is a result of a search."""

    id: str
    """Id of the document; of the document that the passage is cut from, where the corpus is cut into passages."""
    score: float
    """Inner product of the query's and the document's vectors: their cosine where similarity is cosine. In other
    modes BM25, or the sum of both."""
    leaf: int
    """Leaf in which the document was scored."""
    title: str | None
    """Title of the document; null where the request does not include it, as text and fields are."""
    text: str | None
    """Text of the document; of its best passage where the corpus is cut into passages."""
    fields: dict[str, Any] | None
    """Values of the fields that the corpus declares."""
    estimated: bool
    """True for a re-ranked result that the cross-encoder did not read: its score is estimated from those read."""


class Visits(_Body):
    """Leaves visited and documents scored for a query."""

    leaves: list[int]
    """Numbers of the leaves, in the order of visit."""
    documents: int
    """Distinct documents scored. A partial answer may count too few: a document in a lost leaf counts only there."""
    fraction: float
    """Distinct documents scored, as a share of the corpus."""
    enough: bool
    """True where there are `k` results; false where the leaves that may be visited hold fewer documents that match."""


class RoutedLeaf(_Body):
    """One leaf that a query would visit."""

    leaf: int
    log_prob: float
    """Natural logarithm of the probability that the router gives the leaf for this query."""
    log_density: float | None
    """`log_prob` less the logarithm of the leaf's size, as the router knows it: how probable a document in it is. Null
    where the router knows no sizes."""


class Explanation(_Body):
    """Leaves that a query was routed to and rows that were scored for its answer."""

    leaves: list[RoutedLeaf]
    """Leaves that the query was routed to, in the order of visit, before a filter made it visit more."""
    scanned: int
    """Rows scored: a document in two of the leaves counts twice; with a filter, those that match, of all leaves anew
    each time that more are visited."""
    widened: int
    """Leaves visited beyond these, since too few documents matched the filter."""
    rows: int
    """Rows in the leaves visited, whether they match the filter or not; 0 where no leaf is visited."""


class AnswerBody(_Body):
    """Results of one query, best first."""

    results: list[Result]
    visited: Visits
    partial: bool
    """True where results are missing: a shard group that holds leaves of this query did not answer."""
    lost: list[str]
    """Names of the shard groups that did not answer, and `reranker` where no cross-encoder re-ranked the answer."""
    calls: int | None
    """Documents that the cross-encoder read; null where the answer is not re-ranked."""
    explain: Explanation | None
    """Leaves and rows behind the answer; null unless the request has `explain`."""


class SearchResponse(AnswerBody):
    """Results of one query, the version of the index, and the milliseconds of each step."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "results": [
                        {
                            "id": "d7",
                            "score": 0.7263,
                            "leaf": 79,
                            "title": "Title",
                            "text": "A text.",
                            "fields": {},
                            "estimated": False,
                        }
                    ],
                    "visited": {"leaves": [79, 145], "documents": 83, "fraction": 0.0246, "enough": True},
                    "calls": None,
                    "explain": None,
                    "partial": False,
                    "lost": [],
                    "mode": "dense",
                    "version": 1,
                    "ms": {"queue": 0.1, "encode": 6.1, "route": 0.4, "scan": 5.2, "total": 12.0},
                }
            ]
        }
    )
    version: int
    """Version of the index that was searched."""
    ms: dict[str, float]
    """Milliseconds by step: queue (waiting for the encoder), encode, route, scan (with what waits there), total."""
    mode: Mode
    """What ordered the results."""


class BatchResponse(_Body):
    """An answer for each query, in the order of the request."""

    answers: list[AnswerBody]
    version: int
    """Version of the index that was searched."""
    ms: dict[str, float]
    """Milliseconds for the whole batch, by step: queue (waiting for the encoder), encode, route, scan, total."""
    mode: Mode
    """What ordered the results."""


class RouteResponse(_Body):
    """Leaves that a query would visit, in the order of visit, which need not be the order of probability."""

    leaves: list[RoutedLeaf]
    order: Literal["density", "probability"]
    """What the order of visit is: densest first where the router knows the leaves' sizes, else most probable first."""
    version: int


class IndexResponse(_Body):
    """The index that is served."""

    name: str
    version: int
    index: str
    """Fingerprint of the index."""
    model: str
    """Fingerprint of the model."""
    router: str
    """Type of the router."""
    documents: int
    """Number of documents; of passages where the corpus is cut into passages."""
    leaves: int
    """Number of leaves."""
    leaves_per_document: int
    """Most leaves that a document lies in."""
    shards: int
    """Number of files that hold the rows."""
    groups: list[str]
    """Names of the shard groups: deployments that share the leaves."""
    dimension: int
    """Numbers in a vector."""
    similarity: Similarity
    """How vectors are compared; where it is `cosine`, a vector has unit length."""
    precision: str
    """Number format that queries are encoded in."""
    fields: dict[str, FieldType]
    """Fields that the corpus declares, and their types: what filters may name."""
    k: int
    """Results for a query that gives no `k`."""
    rerank: str
    """How results are re-ranked by a cross-encoder: none, rnr, axn or adacur."""
    budget: int
    """Documents that the cross-encoder reads for a query; 0 where there is none."""
    pool: int | Literal["leaves", "all"] | None
    """Documents of which the cross-encoder reads some: those of the leaves that a query visits, a number of the best
    of these, or all of the index, whose queries visit all leaves. Null where there is no cross-encoder."""
    how: Literal["leaves", "level"]
    """`leaves` where a query visits leaves; `level` where a level of the tree compares it with all documents."""
    mode: Mode
    """What orders the results of a text that gives no `mode`."""
    modes: list[Mode]
    """Modes that a query may ask for."""
    beam: int
    """Most leaves visited for a query that gives no `beam`."""
    limits: dict[str, int | float]
    """Limits of requests, by name: `max_k` and others."""


class Health(_Body):
    """Readiness of every shard group, and of the cross-encoder where there is one: answers are then complete."""

    ready: bool
    lost: list[str]
    """Names of the shard groups that do not answer, and `reranker` where the cross-encoder does not."""


class ErrorDetail(_Body):
    """The code and the message of an error."""

    code: str
    """Kind of error, for programs."""
    message: str
    """The value that was wrong and the values allowed, for people."""


class ErrorBody(_Body):
    """Body of every error, except for `GET /readyz`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": {"code": "invalid", "message": "k: got 5000; allowed: 1 to 1000"}}]}
    )
    error: ErrorDetail
