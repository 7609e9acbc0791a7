"""The page for people at `/`. The page's files need no token. The page reads data from the API like any client."""

from hashlib import sha256
from pathlib import Path

from fastapi import FastAPI, Request, Response

FOLDER = Path(__file__).parents[1] / "page"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FILES = {"/" if file.name == "index.html" else f"/page/{file.name}": file.name for file in sorted(FOLDER.glob("*.*"))}
PAGE = frozenset(FILES)
"""Paths of the page, which need no token."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("connect", "img", "script", "style")),
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""What a browser allows the page: only to load its own files and to call this server. Text cannot become markup."""
HEADERS = {
    "Cache-Control": "no-cache",  # a browser asks each time, and gets 304 if nothing changed
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def install_page(app: FastAPI) -> None:
    for path, name in FILES.items():
        _add(app, path, (FOLDER / name).read_bytes(), TYPES[Path(name).suffix])


def _add(app: FastAPI, path: str, content: bytes, media_type: str) -> None:
    tag = f'"{sha256(content).hexdigest()[:16]}"'
    headers = {**HEADERS, "ETag": tag}

    @app.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)
    async def file(request: Request) -> Response:
        known = [name.strip().removeprefix("W/") for name in request.headers.get("if-none-match", "").split(",")]
        if tag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)
