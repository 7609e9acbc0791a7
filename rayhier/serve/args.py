"""What a deployment is told: `args` of jobs/serve.yaml."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rayhier.spec import InputError

Count = Annotated[int, Field(ge=1)]


class _Given(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Limits(_Given):
    """The most that one request may ask for, and the most requests at a time."""

    max_body_bytes: Count = 4_000_000
    """Bytes of a request's body."""
    max_batch: Count = 64
    """Queries, or vectors, of one request."""
    max_k: Count = 1_000
    """Results a query."""
    max_beam: Count = 1_024
    """Leaves a query visits."""
    max_query: Count = 10_000
    """Characters of a query."""
    max_requests: Count = 64
    """Requests an ingress works on; what comes beyond is answered 503."""


class ServeArgs(_Given):
    """What to serve, and how."""

    workdir: str
    """Where a run has built an index: an absolute path, or s3:// or gs://."""
    token_file: str | None = None
    """A file whose one line is the token that requests must carry; none: no token is asked for."""
    shard_groups: Count | None = None
    """Deployments that share the shards, at most one a shard; two where there are two shards."""
    shard_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    """How long a group of shards may take before its answer counts as lost."""
    encoder_threads: Count = 1
    """Threads torch encodes with, in each ingress."""
    limits: Limits = Limits()


def read_token(path: str) -> str:
    """The token in a file; InputError, which never says what the file holds, where there is none."""
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
