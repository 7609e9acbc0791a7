"""What the automatic choices of a search come to, by the size of an index and the memory that it may take."""

from rayhier.spec.index_size import IndexSize
from rayhier.spec.search import SearchSpec

from ...toys import job

HUNDRED = IndexSize(documents=100_000, rows=100_000, dimension=384, leaves=8_000)
MILLIONS = IndexSize(documents=10_000_000, rows=10_000_000, dimension=384, leaves=16_384)


def codec(size: IndexSize, **section: object) -> str | None:
    """The codec of leaves."""
    return SearchSpec.model_validate(section).row_codec(size)


def test_speed_decides():
    assert codec(HUNDRED) is None
    assert codec(MILLIONS) == "pq"


def test_what_a_plan_estimates_is_near_what_an_index_has():
    spec = job()
    size = spec.index_size(1_000_000, 384)
    assert size.rows == 1_000_000 * spec.rows_per_document
    assert size.leaves == spec.leaves(1_000_000)
