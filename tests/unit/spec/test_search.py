"""What the automatic choices of a search come to, by the size of an index."""

import pytest

from rayhier.spec.index_size import MOST_SMALL
from rayhier.spec.search import SearchSpec


@pytest.mark.parametrize(
    ("section", "k", "small", "large"),
    [
        ({}, 10, 60, 120),
        ({"how": "level"}, 10, 120, 240),
        ({}, 100, 300, 600),
        ({"shortlist": 150}, 10, 150, 150),
        ({"shortlist": 150}, 200, 200, 200),
    ],
)
def test_rows_that_vectors_score_after_codes(section, k, small, large):
    search = SearchSpec.model_validate(section)
    assert [search.shortlisted(k, documents) for documents in (MOST_SMALL, MOST_SMALL + 1)] == [small, large]
