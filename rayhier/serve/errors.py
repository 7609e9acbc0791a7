"""Errors for requests that cannot be answered. This module imports no web framework, so clients can use it."""

import re
from collections.abc import Mapping

FOLDERS = re.compile(r"(?:\w+:/)?/(?!v[0-9]/)(?:[^\s/;,'\"]+/)*(?=[^\s/]+/[^\s/])")
RETRY = {"Retry-After": "1"}


class ApiError(Exception):
    """An error that ends a request, with an HTTP status, a code for programs and a message for people."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers

    def __reduce__(self) -> tuple[object, ...]:
        """Let the error be copied between processes."""
        return type(self), (self.status, self.code, self.message, self.headers)


class LostError(Exception):
    """A deployment gave no answer. The message is the deployment's name."""


def without_folders(message: str) -> str:
    """Shorten paths of this machine in a message to their last two parts.

    >>> without_folders("/srv/runs/index/a1/data/0.parquet: SHA-256 differs; see GET /v1/index")
    'data/0.parquet: SHA-256 differs; see GET /v1/index'
    """
    return FOLDERS.sub("", message)


def invalid(message: str) -> ApiError:
    return ApiError(422, "invalid", message)


def key_reused() -> ApiError:
    return ApiError(
        422, "key_reused", "Idempotency-Key: was used with another body; allowed: a new key for each change"
    )


def unanswered(message: str) -> ApiError:
    """Make the ApiError 503 for deployments that did not answer."""
    return ApiError(503, "shards_lost", message, RETRY)


def overloaded(message: str) -> ApiError:
    """Make the ApiError 503 for too many requests at a time. The same request may succeed a second later."""
    return ApiError(503, "overloaded", message, RETRY)
