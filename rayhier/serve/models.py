"""Bodies of requests and responses."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

BOUND = 1e6
"""Greatest magnitude of a vector's number: no product of two vectors leaves float32."""


def _has_words(text: str) -> str:
    if not text.strip():
        raise ValueError("got no words; allowed: any text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"got half a character at {error.start}; allowed: Unicode text") from None
    return text


Query = Annotated[str, AfterValidator(_has_words)]
Vector = Annotated[
    list[Annotated[float, Field(ge=-BOUND, le=BOUND, allow_inf_nan=False)]],
    Field(min_length=1, description="As the index's encoder makes it, of unit length where similarity is cosine."),
]
Count = Annotated[int, Field(ge=1)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class _Request(_Body):
    model_config = ConfigDict(strict=True)

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        """Text or vectors, not both and not neither."""
        first, second = list(type(self).model_fields)[:2]
        given = [name for name in (first, second) if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"got {' and '.join(given) or 'neither'}; allowed: exactly one of {first}, {second}")
        return self


class SearchRequest(_Request):
    """One question."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "how do I open a zip file", "k": 5}]})
    query: Query | None = None
    """Text to look for."""
    vector: Vector | None = None
    """The same, encoded already."""
    k: Count | None = None
    """Results; the spec's where none is given."""
    beam: Count | None = None
    """Leaves visited; the spec's where none is given."""
    strict: bool = False
    """Answer 503 rather than without the documents of a shard that is lost."""


class BatchRequest(_Request):
    """Several questions at once."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"queries": ["open a zip file", "sort a list"], "k": 5}]})
    queries: Annotated[list[Query], Field(min_length=1)] | None = None
    """Texts to look for."""
    vectors: Annotated[list[Vector], Field(min_length=1)] | None = None
    """The same, encoded already."""
    k: Count | None = None
    """Results a question; the spec's where none is given."""
    beam: Count | None = None
    """Leaves visited by each; the spec's where none is given."""
    strict: bool = False
    """Answer 503 rather than without the documents of a shard that is lost."""


class RouteRequest(_Request):
    """One question, to be sent to leaves but not searched for."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "how do I open a zip file", "beam": 4}]})
    query: Query | None = None
    """Text to route."""
    vector: Vector | None = None
    """The same, encoded already."""
    beam: Count | None = None
    """Leaves; the spec's where none is given."""


class Result(_Body):
    """One document found."""

    id: str
    score: float
    leaf: int
    title: str
    text: str
    """Of the passage that scored best, where the corpus is cut into passages."""
    fields: dict[str, Any]
    """The corpus's declared fields."""


class Visited(_Body):
    """What a question cost."""

    leaves: list[int]
    """Most probable first."""
    documents: int
    """Distinct documents scored; for a partial answer perhaps a few more were: those that a lost leaf would count."""
    fraction: float
    """The same, of the whole corpus."""


class AnswerBody(_Body):
    """Results of one question, best first."""

    results: list[Result]
    visited: Visited
    partial: bool
    """Whether a shard that holds leaves of this question was lost."""
    lost: list[str]
    """Deployments of the shards that were lost."""


class SearchResponse(AnswerBody):
    """What was found, in which version of the index, and how long each part took."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "results": [
                        {"id": "d7", "score": 0.7263, "leaf": 79, "title": "Title", "text": "A text.", "fields": {}}
                    ],
                    "visited": {"leaves": [79, 145], "documents": 83, "fraction": 0.0246},
                    "partial": False,
                    "lost": [],
                    "version": 1,
                    "ms": {"encode": 6.1, "route": 0.4, "scan": 5.2, "total": 12.0},
                }
            ]
        }
    )
    version: int
    ms: dict[str, float]
    """Milliseconds: encode, route, scan, total."""


class BatchResponse(_Body):
    """An answer for each question, in their order."""

    answers: list[AnswerBody]
    version: int
    ms: dict[str, float]
    """Milliseconds for all of them: encode, route, scan, total."""


class RoutedLeaf(_Body):
    """One leaf a question is sent to."""

    leaf: int
    log_prob: float


class RouteResponse(_Body):
    """Leaves, most probable first."""

    leaves: list[RoutedLeaf]
    version: int


class IndexResponse(_Body):
    """What is served."""

    name: str
    version: int
    index: str
    """Fingerprint."""
    model: str
    """Fingerprint."""
    router: str
    documents: int
    """Passages, where the corpus is cut into them."""
    leaves: int
    leaves_per_document: int
    shards: int
    groups: list[str]
    """Deployments that share the shards."""
    dimension: int
    fields: dict[str, str]
    """The corpus's declared fields and their types."""
    k: int
    """Results a question gets where it does not say."""
    beam: int
    """Leaves a question visits where it does not say."""
    limits: dict[str, int]


class Health(_Body):
    """Whether requests will be answered in full."""

    ready: bool
    lost: list[str]
    """Deployments that do not answer."""


class ErrorDetail(_Body):
    """What was wrong, and what is allowed."""

    code: str
    message: str


class ErrorBody(_Body):
    """Every answer but those of 200."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": {"code": "invalid", "message": "k: got 5000; allowed: 1 to 1000"}}]}
    )
    error: ErrorDetail
