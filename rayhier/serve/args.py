"""Settings of a deployment: `args` of jobs/serve.yaml."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rayhier.spec.encoder import Precision

Count = Annotated[int, Field(ge=1)]
Origin = Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Args(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class RequestLimits(_Args):
    """Limits of a request, and of requests at a time; a request that exceeds a limit is refused."""

    max_body_bytes: Count = 4_000_000
    """Most bytes in a request's body."""
    max_batch: Count = 64
    """Most queries, or vectors, in one request."""
    max_k: Count = 1_000
    """Most results for a query."""
    max_beam: Count = 1_024
    """Most leaves that a query may ask to visit; one with a filter visits more, up to the spec's `search.widest`."""
    max_budget: Count = 1_000
    """Most documents that the cross-encoder reads for a query."""
    max_calls: Count = 6_400
    """Most documents that the cross-encoder reads for all queries of one request."""
    max_pool: Count = 640_000
    """Most documents in the pools of all queries of one request: their texts and vectors are in memory."""
    max_query: Count = 10_000
    """Most characters in a query."""
    max_answer_bytes: Count = 10_000_000
    """Most bytes in one answer, about; a request that would get more is refused."""
    queue_seconds: Seconds = 0.05
    """Seconds that a query may wait for others, reckoned from the number that wait and the rate of answers; where a
    line stands for a twentieth of a second, a query that would wait for longer is answered 503."""
    max_requests: Count = 64
    """Most requests whose bodies are read that an ingress works on at once; further ones are answered 503."""
    max_arriving_bytes: Count = 256_000_000
    """Most bytes of bodies that an ingress holds while they arrive; a body that would exceed them is answered 503."""
    body_seconds: Seconds = 10.0
    """Seconds that a body may take to arrive; then 408."""
    seconds: Seconds = 30.0
    """Seconds that a request may take from its first byte to its last; then 504."""


class ServeArgs(_Args):
    """Arguments of a served index: its workdir, token, replicas and limits."""

    workdir: str
    """Folder where a run built an index: an absolute path, s3:// or gs://."""
    token_file: str | None = None
    """File with one line, the token that requests must carry, read again when it changes; without it, none is."""
    write_token_file: str | None = None
    """File with one line, another token, which opens writing too; without it, a token of `token_file` only reads."""
    cors_origins: list[Origin] = []
    """Origins whose pages may ask from a browser, like https://search.example.org; `*` is every origin."""
    log_queries: bool = False
    """True where the log quotes the texts of queries."""
    behind_front: bool = False
    """True where a proxy that limits the heads of requests stands before Serve's own, which has no such limit."""
    ingresses: Count | None = None
    """Replicas of the ingress on Ray Serve, so that one which dies is no outage; two by default where Ray has four CPUs
    or more, else one."""
    shard_groups: Count | None = None
    """Deployments that share the index's leaves, at most one for each leaf; two by default."""
    together: Count = 64
    """Queries of several requests that are encoded, routed and scanned together, at most; 1: each request alone."""
    shard_seconds: Seconds = 5.0
    """Seconds that a shard group may take before its answer counts as lost."""
    encoder_precision: Precision = "float32"
    """Number format that queries are encoded in: in bfloat16 an answer depends on how queries were batched."""
    reranker_seconds: Seconds = 20.0
    """Seconds that the cross-encoder may take for all calls of a request, before the answer goes without it; where
    those of other requests would take half of it, a request is answered 503."""
    reranker_threads: Count = 1
    """Threads that torch scores pairs with, in each replica of the reranker; an embedded server, which is one process,
    scores by `encoder_threads`."""
    encoder_threads: Count = 1
    """Threads that torch encodes queries with, in each ingress."""
    limits: RequestLimits = RequestLimits()
