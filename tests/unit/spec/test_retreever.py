"""Keys of ReTreever's training and tree that would have no effect, or contradict each other, are refused."""

import pytest
from pydantic import TypeAdapter, ValidationError

from rayhier.spec import JobSpec
from rayhier.spec.router import RouterSpec
from rayhier.spec.train import RetreeverTraining

JOB = {"name": "a", "workdir": "work", "corpus": {"type": "python_docs"}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"similarity": "tv", "anchor": 5}, "anchor only where similarity is cosine"),
        ({"scale": 500, "most_scale": 20}, "scale at most most_scale"),
        ({"similarity": "tv", "scale": 500, "most_scale": 200}, "scale at most most_scale"),
        ({"objective": "documents", "documents": 2}, "documents only where judged queries ask too"),
        ({"objective": "documents", "reads": "trained"}, "reads auto or base with objective documents"),
    ],
)
def test_what_has_no_effect_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RetreeverTraining.model_validate({"type": "retreever", **given})


def test_attention_has_at_most_twelve_levels() -> None:
    with pytest.raises(ValidationError, match="depth at most 12 where splits is attention"):
        TypeAdapter(RouterSpec).validate_python({"type": "retreever", "splits": "attention", "depth": 13})


def test_no_transformer_is_read_anew_where_it_does_not_learn() -> None:
    train = {"type": "retreever", "objective": "documents"}
    with pytest.raises(ValidationError, match=r"encoder\.train: got 'all' with train\.objective documents"):
        JobSpec.model_validate({**JOB, "encoder": {"model": "m", "train": "all"}, "train": train})
    JobSpec.model_validate({**JOB, "encoder": {"model": "m"}, "train": train})


@pytest.mark.parametrize(
    ("pairs", "batch", "passes"), [(809, 128, 429), (60_000, 128, 7), (1_000_000, 128, 5), (10, 128, 3_000)]
)
def test_automatic_epochs_make_3000_steps_and_five_passes(pairs: int, batch: int, passes: int) -> None:
    spec = RetreeverTraining(type="retreever", batch_size=batch)
    assert spec.passes(pairs) == passes


@pytest.mark.parametrize(("reads", "phases"), [("auto", ["encoder", "adapter", "tree"]), ("base", ["adapter", "tree"])])
def test_reads_says_whether_the_encoder_learns(reads: str, phases: list[str]) -> None:
    spec = RetreeverTraining.model_validate({"type": "retreever", "reads": reads})
    assert list(spec.phases(100, 1_000)) == phases
    assert list(spec.phases(0, 1_000)) == ["adapter", "tree"]


@pytest.mark.parametrize(
    ("given", "similarity", "scales"),
    [
        ({}, "cosine", (20, 100)),
        ({}, "tv", (300, 10_000)),
        ({"similarity": "tv", "scale": 500}, "tv", (500, 10_000)),
        ({"similarity": "tv", "scale": 500}, "cosine", (20, 100)),
        ({"scale": 5, "most_scale": 7}, "cosine", (5, 7)),
        ({"scale": 5, "most_scale": 7}, "tv", (300, 10_000)),
    ],
)
def test_scales_are_about_similarities_of_the_tree_s_kind(given, similarity, scales) -> None:
    """The adapter before a tree compares by the cosine, whatever the tree does."""
    assert RetreeverTraining.model_validate({"type": "retreever", **given}).scales(similarity) == scales
