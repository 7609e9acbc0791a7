"""Settings of a deployment: `args` of jobs/serve.yaml."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rayhier.spec import InputError

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Args(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class RequestLimits(_Args):
    """Limits of one request, and of requests at a time; what exceeds them is refused."""

    max_body_bytes: Count = 4_000_000
    """Most bytes in a request's body."""
    max_batch: Count = 64
    """Most queries, or vectors, in one request."""
    max_k: Count = 1_000
    """Most results for a query."""
    max_beam: Count = 1_024
    """Most leaves that a query visits."""
    max_query: Count = 10_000
    """Most characters in a query."""
    max_requests: Count = 64
    """Most requests whose bodies are read that an ingress works on at once; further ones are answered 503."""
    max_arriving_bytes: Count = 256_000_000
    """Most bytes of bodies that an ingress holds while they arrive; what would exceed them is answered 503."""
    body_seconds: Seconds = 10.0
    """Seconds that a body may take to arrive; then 408."""
    seconds: Seconds = 30.0
    """Seconds that a request may take from its first byte to its last; then 504."""


class ServeArgs(_Args):
    """Arguments of a served index: its workdir, token, replicas and limits."""

    workdir: str
    """Folder where a run built an index: an absolute path, s3:// or gs://."""
    token_file: str | None = None
    """File with one line, the token that requests must carry; without a file, no token is required."""
    shard_groups: Count | None = None
    """Deployments that share the index's leaves, at most one for each leaf; two by default."""
    shard_seconds: Seconds = 5.0
    """Seconds that a shard group may take before its answer counts as lost."""
    encoder_threads: Count = 1
    """Threads that torch encodes queries with, in each ingress."""
    limits: RequestLimits = RequestLimits()


def read_token(path: str) -> str:
    """Read the token from a file; InputError where it holds none. Its message never quotes the file."""
    if not Path(path).is_absolute():
        raise InputError(f"token_file: got {path!r}; allowed: an absolute path")
    try:
        token = Path(path).read_bytes().decode("ascii").strip()
    except OSError as error:
        raise InputError(f"token_file: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"token_file: {path} holds no token; allowed: one line of ASCII characters") from None
    if not token:
        raise InputError(f"token_file: {path} is empty; allowed: one line, the token")
    if not token.isprintable() or " " in token:
        raise InputError(f"token_file: {path} holds more than a token; allowed: one line without spaces")
    return token
