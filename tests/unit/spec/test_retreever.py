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
        ({"objective": "documents", "documents": 2}, "documents only where judged queries ask too"),
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


def test_the_encoder_learns_from_judged_pairs_alone() -> None:
    spec = RetreeverTraining(type="retreever")
    assert list(spec.phases(100, 1_000)) == ["encoder", "adapter", "tree"]
    assert list(spec.phases(0, 1_000)) == ["adapter", "tree"]
