"""Settings of a server: `args` of jobs/serve.yaml."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Origin = Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Args(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class RequestLimits(_Args):
    max_body_bytes: Count = 4_000_000
    """Largest number of bytes in a request's body."""
    max_batch: Count = 64
    """Largest number of queries, or vectors, in one request."""
    max_k: Count = 1_000
    """Largest number of results for a query."""
    max_beam: Count = 1_024
    """Largest number of leaves that a query may ask to visit. A query with a filter may visit all leaves."""
    max_budget: Count = 1_000
    """Largest number of documents that the cross-encoder reads for a query."""
    max_calls: Count = 6_400
    """Largest number of documents that the cross-encoder reads for all queries of one request."""
    max_pool: Count = 640_000
    """Largest number of documents, held in memory, from which re-ranking chooses for all queries of a request."""
    max_query: Count = 10_000
    """Largest number of characters in a query, or in a text to encode or to re-rank."""
    max_answer_bytes: Count = 10_000_000
    """Largest number of bytes, approximately, in one answer. A request whose answer would be larger is refused."""
    queue_seconds: Seconds = 2.0
    """Largest number of seconds that a query may wait. The wait is estimated from the number of earlier queries and the
    rate of answers. If queries have waited for 0.05 s or more, a query that would exceed this limit is answered 503."""
    max_requests: Count = 256
    """Largest number of requests that an ingress works on or answers at a time, once their bodies have arrived. Further
    requests are answered 503. In addition, as many requests may wait for `min_log`."""
    peer_share: Annotated[float, Field(gt=0, le=1)] = 0.75
    """Share of `max_requests`, `max_arriving_bytes` and `max_unsent_bytes` for one address. Set 1 behind one proxy."""
    max_unsent_bytes: Count = 100_000_000
    """Largest number of unread bytes of large answers. A request whose answer would exceed this limit is answered
    503."""
    max_arriving_bytes: Count = 256_000_000
    """Largest number of bytes of arriving bodies in an ingress's memory. A request that would exceed this limit is
    answered 503."""
    body_seconds: Seconds = 10.0
    """Seconds that a request's body may take to arrive. A later body is answered 408."""
    seconds: Seconds = 30.0
    """Seconds from the first byte of a request to the last byte of its answer. A slower request is answered 504."""


class WriteLimits(_Args):
    """Limits of changes of documents, and when changes are folded into leaf files."""

    max_documents: Count = 1_000
    """Largest number of documents in one request, or ids to delete."""
    max_tail_documents: Count = 20_000
    """Largest number of changed documents outside leaf files, which every search compares. Further changes are answered
    503."""
    max_tail_bytes: Count = 200_000_000
    """Largest number of bytes of rows of changed documents outside leaf files. Further changes are answered 503."""
    fold_documents: Count = 2_000
    """Number of changed documents from which on changes are folded into leaf files, as a new version."""
    fold_bytes: Count = 50_000_000
    """Bytes of rows of changed documents from which on changes are folded."""
    fold_seconds: Seconds = 60.0
    """Seconds after which changes are folded, however few they are."""
    keep_versions: Count | None = None
    """Number of newest versions that stay when the server removes older versions after each fold. Files and parts of
    the log that no version needs are removed too. Default: no version is removed until `rayhier index vacuum`."""
    seconds: Seconds = 120.0
    """Seconds that a request to write may take, in place of `limits.seconds`, because its documents are encoded."""


class Auditing(_Args):
    """Settings for recall as served: how many queries are also searched exactly."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Share of queries that are drawn to be searched exactly. With 0, recall is not measured."""
    cpu: Annotated[float, Field(gt=0, le=1)] = 0.03
    """Largest share of one CPU that exact searches take. Queries that are drawn during an exact search are skipped."""


class ServeArgs(_Args):
    """Settings of a server of an index: workdir, tokens, replicas and limits."""

    workdir: str
    """Folder in which a run built an index: an absolute path, s3:// or gs://."""
    token_file: str | None = None
    """File with one line, the token that requests must carry. The file is read again when it changes. Without this
    file, requests need the write token, or no token if there is no write token either."""
    write_token_file: str | None = None
    """File with one line, another token, which also allows writing. Without this file, nobody may write."""
    cors_origins: list[Origin] = []
    """Origins whose pages may send requests from a browser, like https://search.example.org. `*` is every origin."""
    allowed_hosts: list[str] = []
    """Names that the header Host of requests may have. If empty, any name is allowed. A server of one process on
    loopback without a token allows only these names and loopback's names."""
    log_queries: bool = False
    """True: the log contains the texts of queries."""
    behind_front: bool = False
    """True if a proxy before Ray Serve's proxy limits the size of requests' heads. Ray Serve's proxy sets no limit."""
    ingresses: Count | None = None
    """Ingress replicas on Ray Serve. Of two, one may fail. Default: two if Ray has four CPUs or more, else one."""
    shard_groups: Count | None = None
    """Number of shard groups, at most one per leaf. Default: two on Ray Serve, one in a single process."""
    together: Count = 64
    """Largest number of queries, of several requests, that are encoded, routed and scanned together. 1: each query
    alone."""
    shard_seconds: Seconds = 5.0
    """Seconds that a shard group may take to answer. If a group takes longer, answers lack its documents."""
    reranker_seconds: Seconds = 20.0
    """Seconds for the cross-encoder to read all documents of a request. After that, results are not re-ranked.
    If the documents of other requests would take half of this time, a request is answered 503."""
    reranker_threads: Count = 1
    """Threads of torch in each replica of the cross-encoder. A server of one process uses `encoder_threads`."""
    encoder_threads: Count = 1
    """Threads that encode queries in each ingress."""
    limits: RequestLimits = RequestLimits()
    writes: WriteLimits = WriteLimits()
    recall: Auditing = Auditing()
