"""What `auto` stands for where two sections decide together."""

import pytest

from rayhier.spec import JobSpec
from rayhier.spec.train import TrainSpec


def job(router, **index):
    least = {"name": "test", "workdir": "w", "corpus": {"type": "python_docs"}, "encoder": {"model": "package:none"}}
    return JobSpec.model_validate({**least, "router": {"type": "ehi", **router}, "index": index})


@pytest.mark.parametrize(("training", "leaves"), [("taught", 2), ("joint", 1)])
def test_leaves_per_document(training, leaves):
    assert job({"training": training}).leaves_per_document == leaves
    assert job({"training": training}, leaves_per_document="auto").leaves_per_document == leaves
    assert [job({"training": training}, leaves_per_document=n).leaves_per_document for n in (1, 2)] == [1, 2]


@pytest.mark.parametrize(
    ("training", "index", "rows"),
    [
        ("taught", {}, 1.5),
        ("taught", {"spilled": 0.25}, 1.25),
        ("taught", {"leaves_per_document": 1}, 1),
        ("joint", {}, 1),
        ("joint", {"leaves_per_document": 2}, 2),
    ],
)
def test_rows_per_document(training, index, rows):
    assert job({"training": training}, **index).rows_per_document == rows


@pytest.mark.parametrize(("training", "epochs", "batch"), [("taught", 10, 256), ("joint", 20, 64)])
def test_epochs_and_batches(training, epochs, batch):
    assert (TrainSpec().passes(training), TrainSpec().pairs_a_step(training)) == (epochs, batch)
    given = TrainSpec(epochs=3, batch_size=7)
    assert (given.passes(training), given.pairs_a_step(training)) == (3, 7)
