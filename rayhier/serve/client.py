"""Asking a server from Python.

Client("http://127.0.0.1:8000").search("how do I open a zip file", k=5).results[0].title
"""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from rayhier.serve.errors import ApiError
from rayhier.serve.models import BatchResponse, IndexResponse, RouteResponse, SearchResponse

Question = str | Sequence[float]
"""Text, or its vector."""


class Client:
    """One server; ApiError, with status, code and message, where it refuses."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 30.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url: got {url!r}; allowed: http://… or https://…")
        self.url, self.timeout = url.rstrip("/"), timeout
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def search(
        self, question: Question, k: int | None = None, beam: int | None = None, *, strict: bool = False
    ) -> SearchResponse:
        """The best `k` documents among the `beam` most probable leaves; the spec's where none is given."""
        body = {_kind(question, "query", "vector"): _plain(question), "k": k, "beam": beam, "strict": strict}
        return SearchResponse.model_validate(self._ask("/v1/search", body))

    def search_batch(
        self, questions: Sequence[Question], k: int | None = None, beam: int | None = None, *, strict: bool = False
    ) -> BatchResponse:
        """The same for several questions, all texts or all vectors."""
        kind = _kind(questions[0], "queries", "vectors")
        body = {kind: [_plain(question) for question in questions], "k": k, "beam": beam, "strict": strict}
        return BatchResponse.model_validate(self._ask("/v1/search:batch", body))

    def route(self, question: Question, beam: int | None = None) -> RouteResponse:
        """The `beam` most probable leaves."""
        body = {_kind(question, "query", "vector"): _plain(question), "beam": beam}
        return RouteResponse.model_validate(self._ask("/v1/route", body))

    def index(self) -> IndexResponse:
        """What is served."""
        return IndexResponse.model_validate(self._ask("/v1/index"))

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self._headers)  # noqa: S310 checked in __init__
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None


def _kind(question: Question, text: str, vector: str) -> str:
    return text if isinstance(question, str) else vector


def _plain(question: Question) -> str | list[float]:
    return question if isinstance(question, str) else [float(number) for number in question]


def _refusal(error: urllib.error.HTTPError) -> ApiError:
    said, again = error.read().decode(errors="replace"), error.headers.get("Retry-After")
    headers = None if again is None else {"Retry-After": again}
    try:
        detail = json.loads(said)["error"]
        return ApiError(error.code, detail["code"], detail["message"], headers)
    except (ValueError, KeyError, TypeError):
        return ApiError(error.code, "http", said[:200], headers)
