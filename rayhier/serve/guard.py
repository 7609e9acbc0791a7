"""Checks of every request before it is parsed: its token, the number of requests at work, the size of its body."""

import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rayhier.serve.args import RequestLimits
from rayhier.serve.errors import ApiError, overloaded

OPEN = ("/healthz", "/readyz")
"""Paths that need no token and are answered even under load."""


class Guard:
    """ASGI middleware that checks requests; where `token` is None, none is required."""

    def __init__(self, app: ASGIApp, token: str | None, limits: RequestLimits) -> None:
        self.app, self.limits = app, limits
        self._token = None if token is None else token.encode()
        self._busy = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 401, 413 or 503."""
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) in OPEN:
            await self.app(scope, receive, send)
            return
        try:
            self._check_token(scope)
            if self._busy >= self.limits.max_requests:
                raise overloaded(f"{self._busy} requests are being answered; allowed: {self.limits.max_requests}")
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        self._busy += 1
        try:
            await self._pass(scope, receive, send)
        finally:
            self._busy -= 1

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self._body(scope, receive)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        await self.app(scope, again, send)

    def _check_token(self, scope: Scope) -> None:
        if self._token is None:
            return
        given = dict(reversed(scope["headers"])).get(b"authorization", b"")
        scheme, _, token = given.partition(b" ")
        # Compared in constant time, so that an answer's delay does not tell how much of the token was right.
        if not hmac.compare_digest(token.strip(), self._token) or scheme.lower() != b"bearer":
            said = "Authorization: missing or wrong token; allowed: Bearer and the token of this server"
            raise ApiError(401, "unauthorized", said, {"WWW-Authenticate": "Bearer"})

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, read no further than the limit, whatever Content-Length says."""
        most, parts, size = self.limits.max_body_bytes, list[bytes](), 0
        said = dict(scope["headers"]).get(b"content-length", b"0")
        more = True
        if said.isdigit() and int(said[:20]) > most:
            raise _too_large(most)
        while more:
            message = await receive()
            if message["type"] != "http.request":
                break
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large(most)
            more = message.get("more_body", False)
        return b"".join(parts)


def _too_large(most: int) -> ApiError:
    return ApiError(413, "too_large", f"body: got more than {most} bytes; allowed: {most}", {"Connection": "close"})
