"""Estimate the memory of a stage's processes."""

from rayhier.arrays import IN_MEMORY
from rayhier.job.hours import Work
from rayhier.spec import JobSpec
from rayhier.spec.train import RetreeverTraining
from rayhier.spec.train.pseudo_queries import MOST_DRAWN, SPANS

STARTED, SETTLED, SEARCHED, NUMBERS = 200_000, 1_024, 100_000, 1 << 28
"""Limits of ReTreever's training, for memory. The first fit of a tree holds scores of STARTED documents and SETTLED
splits. Dev queries search SEARCHED documents, which have at most NUMBERS numbers in all."""

BYTES_AN_ID = 150.0
"""Bytes of memory per document in training: its id as a string and in a column, and its row numbers."""


def drawn_rows(spec: JobSpec, work: Work) -> int:
    """Return the largest possible number of pseudo-queries (titles and spans of documents) that the training uses."""
    draws = spec.train.draws
    return 0 if draws is None else min(MOST_DRAWN, work.documents) * (draws.has_titles + draws.has_spans * SPANS)


def stage_memory(stage: str, spec: JobSpec, work: Work) -> float:
    """Estimate the peak memory of one process in bytes, without batches and shards, which the spec limits."""
    match stage:
        case "cross_encoder":
            return _vectors(work) + work.documents * work.document_bytes
        case "factors":
            return _vectors(work)
        case "train":
            return _train_memory(spec, work)
        case "evaluate":  # a baseline has two lists per document, and the vectors that it is made of are mapped
            return 2 * _vectors(work)
        case _:
            return 0


def _train_memory(spec: JobSpec, work: Work) -> float:
    """Estimate the bytes of ids, of base and trained vectors, and of pseudo-queries' base vectors with a copy.

    Texts and large arrays are mapped, and do not count. ReTreever adds the larger of two
    sizes: scores of a tree's first fit, or two arrays of scores for dev queries' searches.
    """
    drawn = 2 * 4.0 * drawn_rows(spec, work) * work.dimension
    sizes = [4.0 * rows * work.dimension for rows in (work.documents, work.queries + work.generated)]
    extra = BYTES_AN_ID * work.documents + 2 * sum(size for size in sizes if size <= IN_MEMORY)
    if isinstance(spec.train, RetreeverTraining):
        leaves = spec.leaves(work.documents)
        started = min(work.documents, STARTED) if spec.router.reads == "vectors" else 0
        searched = min(work.documents, SEARCHED, NUMBERS // leaves)
        extra += 4.0 * max(min(leaves, SETTLED) * started, leaves * 3 * searched)
    return drawn + extra


def _vectors(work: Work) -> float:
    return 4.0 * (work.documents + work.queries) * work.dimension
