"""Pages of other origins may ask a server only where its config names them."""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from rayhier.serve.errors import ApiError
from rayhier.serve.http.error_handlers import respond
from rayhier.serve.http.models import NAME_SHOWN


class Cors(CORSMiddleware):
    """Answers the questions that browsers ask before a request; a refusal has the form of every error."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a question: which origins, methods and headers are allowed."""
        answer = super().preflight_response(request_headers)
        if answer.status_code < 400:
            return answer
        given = request_headers["origin"][:NAME_SHOWN]
        said = f"origin: got {given!r}; allowed: the config's cors_origins, with GET or POST"
        return respond(ApiError(answer.status_code, "origin", said))


def cross_origin(origins: Sequence[str]) -> list[Middleware]:
    """The middleware that lets pages of these origins ask; none where no origin is named."""
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
