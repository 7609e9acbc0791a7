"""The plan of a batch search, as lines of text: queries, index, workers and output, from metadata alone."""

from collections.abc import Iterator

from rayhier.search.batch import Job
from rayhier.search.request import Request
from rayhier.storage import files
from rayhier.storage.leaf_map import LeafMap

SAMPLED = 1_000
"""Documents whose ids are read to estimate the size of the output."""
BESIDE = {".parquet": (4, 12), ".jsonl": (26, 60), ".trec": (32, 0)}
"""Bytes for each result beside its id, and for each query beside its own, by the output's ending."""


def plan(job: Job, leaf_map: LeafMap, request: Request, workers: str) -> Iterator[str]:
    """Yield a line for each thing that a job reads, does and writes; `workers` says who does it."""
    rows, done = len(job.queries), len(job.done())
    manifest = job.manifest
    yield f"queries   {rows:,} {job.queries}"
    yield (
        f"index     version {manifest.version} of model {manifest.model}: {manifest.documents:,} documents in "
        f"{manifest.leaves:,} leaves"
    )
    yield f"search    {request.k} results of each query, {_how(job, request)}"
    yield f"workers   {workers}"
    there = f", {done:,} of them done" if done else ""
    size = _size(_bytes(job, leaf_map, request.k))
    yield f"output    {job.out}, at most {size}; in parts of at most {job.queries.size:,} queries{there}"


def _how(job: Job, request: Request) -> str:
    """Say what a query is compared with."""
    rules, documents = job.rules, f"{job.manifest.documents:,} documents"
    words = {"dense": "", "bm25": f"the words of all {documents}", "hybrid": f"the words of all {documents}, and "}
    near = ""
    if request.mode != "bm25" and request.beam:
        visited = request.beam * rules.rows / max(1, rules.leaves)
        near = f"at most {request.beam:,} leaves, about {visited:,.0f} rows"
        if request.where is not None or request.fills:
            why = "with the filter" if request.where is not None else f"where these hold fewer than {request.k:,}"
            near += f", and {why} at most {rules.search.leaves_widened(rules.leaves):,}"
    elif request.mode != "bm25":
        near = f"all {documents} by level {rules.search.level} of the tree"
    read = f"; the cross-encoder reads {request.budget:,} documents of each" if request.budget else ""
    return f"from {words[request.mode]}{near}{read}"


def _bytes(job: Job, leaf_map: LeafMap, k: int) -> float:
    """Estimate the bytes of the output before compression, by the mean size of some documents' ids."""
    shard = next((shard for shard in leaf_map.manifest.shards if shard.rows), None)
    if shard is None:
        return 0.0
    ids = files.read_rows(leaf_map.root / shard.file.name, [leaf_map.key(shard)], 0, min(SAMPLED, shard.rows))
    name = float(ids.nbytes) / ids.num_rows
    result, query = BESIDE[job.out.suffix]
    listed = min(k, job.manifest.documents)
    of_query = name * (listed if job.out.suffix == ".trec" else 1)  # a run repeats a query's id in every line
    of_all: float = len(job.queries) * (listed * (name + result) + of_query + query)
    return of_all


def _size(number: float) -> str:
    """Format a number of bytes.

    >>> _size(1_230_000), _size(45e9)
    ('1 MB', '45.0 GB')
    """
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{max(1, round(number / 1e6)):,} MB"
