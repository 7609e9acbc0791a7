"""Query a served index from Python.

Client("http://127.0.0.1:8000").search("how do I open a zip file", k=5).results[0].title
"""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import IncompleteRead
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rayhier.serve.errors import ApiError
from rayhier.serve.models import BatchResponse, ErrorBody, IndexResponse, RouteResponse, SearchResponse

ANSWER_SHOWN = 200
"""Characters shown of an answer that cannot be parsed."""

Question = str | Sequence[float]
"""A question as text, or as its vector."""
Response = TypeVar("Response", bound=BaseModel)


class Client:
    """Asks one server; ApiError (status, code, message) where it refuses, or answers what this version cannot read."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 30.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url: got {url!r}; allowed: http://… or https://…")
        self.url, self.timeout = url.rstrip("/"), timeout
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def search(
        self,
        question: Question,
        k: int | None = None,
        beam: int | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 the name in every interface
        *,
        strict: bool = False,
    ) -> SearchResponse:
        """Find the best `k` documents in at most `beam` leaves; defaults: `k` and `beam` of `index()`.

        With a filter over the declared fields, in as many leaves as hold enough documents that match.
        """
        body: dict[str, Any] = {
            _kind(question, "query", "vector"): _plain(question),
            "k": k,
            "beam": beam,
            "strict": strict,
        }
        body |= {} if filter is None else {"filter": filter}
        return self._ask(SearchResponse, "/v1/search", body)

    def search_batch(
        self,
        questions: Sequence[Question],
        k: int | None = None,
        beam: int | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        strict: bool = False,
    ) -> BatchResponse:
        """Find the best documents for several questions, all texts or all vectors."""
        kind = _kind(questions[0], "queries", "vectors")
        body: dict[str, Any] = {
            kind: [_plain(question) for question in questions],
            "k": k,
            "beam": beam,
            "strict": strict,
        }
        body |= {} if filter is None else {"filter": filter}
        return self._ask(BatchResponse, "/v1/search:batch", body)

    def route(self, question: Question, beam: int | None = None) -> RouteResponse:
        """List the leaves that a question would visit, at most `beam`, in the order of visit."""
        body: dict[str, Any] = {_kind(question, "query", "vector"): _plain(question), "beam": beam}
        return self._ask(RouteResponse, "/v1/route", body)

    def index(self) -> IndexResponse:
        """Describe the index that is served."""
        return self._ask(IndexResponse, "/v1/index")

    def _ask(self, response: type[Response], path: str, body: dict[str, Any] | None = None) -> Response:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self._headers)  # noqa: S310 checked in __init__
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:  # noqa: S310
                status = answer.status
                said = answer.read()
            return response.model_validate_json(said)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except IncompleteRead as error:
            raise ApiError(status, "misfit", f"{path}: the answer ended after {len(error.partial)} bytes") from None
        except ValidationError as error:
            raise ApiError(status, "misfit", _misfit(path, error, said)) from None


def _kind(question: Question, text: str, vector: str) -> str:
    return text if isinstance(question, str) else vector


def _plain(question: Question) -> str | list[float]:
    return question if isinstance(question, str) else [float(number) for number in question]


def _refusal(error: urllib.error.HTTPError) -> ApiError:
    said, again = error.read().decode(errors="replace"), error.headers.get("Retry-After")
    headers = None if again is None else {"Retry-After": again}
    try:
        detail = ErrorBody.model_validate_json(said).error
    except ValidationError:
        return ApiError(error.code, "http", said[:ANSWER_SHOWN], headers)
    return ApiError(error.code, detail.code, detail.message, headers)


def _misfit(path: str, error: ValidationError, said: bytes) -> str:
    """Message that names the field of an answer that this version cannot read."""
    problem = error.errors(include_url=False)[0]
    if problem["type"] == "json_invalid":
        return f"{path}: the answer is not JSON: {said.decode(errors='replace')[:ANSWER_SHOWN]!r}"
    field, got = ".".join(map(str, problem["loc"])) or "the answer", repr(problem["input"])[:ANSWER_SHOWN]
    if problem["type"] == "missing":
        return f"{path}: {field}: missing from the answer; the server may run another version of rayhier"
    return f"{path}: {field}: got {got}: {problem['msg']}; the server may run another version of rayhier"
