"""`auto` follows from the number of documents, and each training has its own fields."""

import pytest
from pydantic import ValidationError

from rayhier.spec.router import EhiSpec


@pytest.mark.parametrize(
    ("training", "documents", "height", "leaves"),
    [
        ("taught", 640, 1, 160),  # 4 documents a leaf
        ("taught", 10_000, 1, 2_500),  # 25 √N: where the two rules meet
        ("taught", 1_000_000, 1, 25_000),  # 40 a leaf
        ("taught", 1_000_000, 2, 158**2),
        ("taught", 3, 1, 2),  # never fewer than two
        ("joint", 640, 1, 40),  # 16 documents a leaf
        ("joint", 25_600, 1, 1_600),  # √N / 10 = 16: where the two rules meet
        ("joint", 1_000_000, 1, 10_000),  # 100 a leaf
        ("joint", 1_000_000, 2, 100**2),
        ("joint", 3, 1, 2),
    ],
)
def test_auto(training, documents, height, leaves):
    assert EhiSpec(type="ehi", training=training, height=height).leaves(documents) == leaves


@pytest.mark.parametrize("training", ["taught", "joint"])
def test_given(training):
    assert EhiSpec(type="ehi", training=training, branching=5, height=3).leaves(10) == 125


@pytest.mark.parametrize(
    ("given", "rank"),
    [({}, 16), ({"rank": 5}, 5), ({"residual": "low_rank"}, 16), ({"residual": "none"}, 0)],
)
def test_the_rank_of_the_bend(given, rank):
    assert EhiSpec(type="ehi", **given).bend_rank == rank


@pytest.mark.parametrize(
    ("given", "documents", "dimensions"),
    [
        ({}, 1_024, 48),  # 256 leaves
        ({}, 1_016, 0),  # 254
        ({"branching": 256}, 10, 48),
        ({"height": 2}, 1_000_000, 0),
        ({"screen": 0}, 1_000_000, 0),
        ({"screen": 8}, 100, 8),
        ({"screen": 0, "height": 2}, 100, 0),
    ],
)
def test_the_dimensions_of_the_screen(given, documents, dimensions):
    assert EhiSpec(type="ehi", **given).screened(documents) == dimensions


REFUSED = {
    "the paper's residual, taught": (
        {"residual": "relu"},
        "residual auto or low_rank or none where training is taught",
    ),
    "a low rank, joint": (
        {"training": "joint", "residual": "low_rank"},
        "residual auto or relu or none where training is joint",
    ),
    "a cold start, taught": ({"warm_start": "none"}, "warm_start kmeans where training is taught"),
    "a screen, joint": ({"training": "joint", "screen": 8}, "screen 0 or auto where training is joint"),
    "a screen over a tree": ({"height": 2, "screen": 8}, "screen 0 or auto where training is joint or height above 1"),
    "a rank, joint": ({"training": "joint", "rank": 8}, "rank auto where training is joint"),
    "a rank and no bend": ({"residual": "none", "rank": 8}, "rank auto where training is joint or residual none"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_another_training_has_is_refused(name):
    given, said = REFUSED[name]
    with pytest.raises(ValidationError) as refused:
        EhiSpec(type="ehi", **given)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"residual": "none"},
        {"residual": "low_rank", "rank": 3, "screen": 8},
        {"training": "joint", "residual": "relu", "warm_start": "none"},
        {"training": "joint", "residual": "none", "height": 3, "screen": 0},
    ],
)
def test_what_a_training_has_is_taken(given):
    assert EhiSpec(type="ehi", **given).model_dump(include=given.keys()) == given
