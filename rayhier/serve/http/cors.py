"""Cross-origin requests: pages of other origins may send requests only where the config names these origins."""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from rayhier.serve.errors import ApiError
from rayhier.serve.http.error_handlers import respond
from rayhier.serve.http.models import NAME_SHOWN


class Cors(CORSMiddleware):
    """Middleware that answers browsers' preflight requests; a refusal has the JSON body that all errors have."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a preflight request with the allowed origins, methods and headers, or refuse it."""
        answer = super().preflight_response(request_headers)
        if answer.status_code < 400:
            return answer
        origin = request_headers["origin"][:NAME_SHOWN]
        message = f"origin: got {origin!r}; allowed: the config's cors_origins, with GET or POST"
        return respond(ApiError(answer.status_code, "origin", message))


def cross_origin(origins: Sequence[str]) -> list[Middleware]:
    """Return the middleware that lets pages of some origins send requests; none where no origin is named."""
    if not origins:
        return []
    heads = ["Authorization", "Content-Type"]
    return [
        Middleware(
            Cors,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=heads,
            expose_headers=["Retry-After"],
        )
    ]
