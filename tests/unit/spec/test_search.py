"""What the automatic choices of a search come to, by the size of an index and the memory that it may take."""

import pytest

from rayhier.spec import InputError, JobSpec
from rayhier.spec.index_size import COPIES, ROW, IndexSize
from rayhier.spec.search import SearchSpec

HUNDRED = IndexSize(documents=100_000, rows=100_000, dimension=384, leaves=8_000)
MILLIONS = IndexSize(documents=10_000_000, rows=10_000_000, dimension=384, leaves=16_384)
ROUTER = COPIES * 4 * 384


def codec(size: IndexSize, **section: object) -> str | None:
    """The codec of leaves."""
    return SearchSpec.model_validate(section).row_codec(size)


def test_without_a_limit_speed_decides():
    assert codec(HUNDRED) is None
    assert codec(MILLIONS) == "pq"


@pytest.mark.parametrize(("spare", "chosen"), [(0, "pq"), (-1, None)])
def test_leaves_are_mapped_where_their_codes_do_not_fit(spare, chosen):
    needed = ROUTER * 16_384 + 10_000_000 * (48 + ROW) + spare
    assert codec(MILLIONS, memory_gb=needed / 1e9) == chosen


@pytest.mark.parametrize(
    ("section", "needed"),
    [
        ({}, ROUTER * 16_384),
        ({"codec": "pq"}, ROUTER * 16_384 + 10_000_000 * (48 + ROW)),
    ],
)
def test_less_memory_than_what_is_asked_for_takes_is_refused(section, needed):
    SearchSpec.model_validate({**section, "memory_gb": needed / 1e9}).check_memory(MILLIONS)
    with pytest.raises(
        InputError, match=r"search\.memory_gb: got .*; allowed: at least .* the router of 16,384 leaves"
    ):
        SearchSpec.model_validate({**section, "memory_gb": needed / 1e9 - 1e-6}).check_memory(MILLIONS)


def test_a_plan_refuses_it_before_work_is_lost(tiny_spec):
    from rayhier.job.plan import make_plan
    from rayhier.spec import load

    make_plan(load(tiny_spec()))
    with pytest.raises(InputError, match=r"search\.memory_gb"):
        make_plan(load(tiny_spec(), ["search.memory_gb=1e-9"]))


def test_the_memory_is_part_of_an_evaluation_only_where_it_is_given(tiny_spec):
    from rayhier.job.plan import make_plan
    from rayhier.spec import load

    none, some = (make_plan(load(tiny_spec(), over)).step("evaluate") for over in ([], ["search.memory_gb=1"]))
    assert none.fingerprint != some.fingerprint


def test_what_a_plan_estimates_is_near_what_an_index_has():
    spec = JobSpec.model_validate(
        {
            "name": "n",
            "workdir": "w",
            "corpus": {"type": "jsonl", "documents": "d"},
            "encoder": {"model": "package:none"},
        }
    )
    size = spec.index_size(1_000_000, 384)
    assert size.rows == 1_000_000 * spec.rows_per_document
    assert size.leaves == spec.leaves(1_000_000)
