"""What sections decide together: which training goes with which router, and what follows from the two."""

import pytest

from rayhier.spec import InputError, JobSpec
from rayhier.spec.train import ContrastTraining, RetreeverTraining, TreeShape

from ...toys import job

PARTNER = {"learned_ivf": "contrast", "ehi": "ehi"}


@pytest.mark.parametrize(
    ("router", "given", "leaves", "rows"),
    [
        ("learned_ivf", "auto", 2, 1.5),
        ("learned_ivf", 1, 1, 1),
        ("ehi", "auto", 1, 1),
        ("ehi", 2, 2, 2),
        ("hce", "auto", 1, 1),
    ],
)
def test_leaves_and_rows_per_document(router, given, leaves, rows):
    spec = job(router={"type": router}, index={"leaves_per_document": given})
    assert (spec.leaves_per_document, spec.rows_per_document) == (leaves, rows)


CONTRAST = [(827, 256, 75), (36_000, 256, 10), (0, 256, 300)]
RETREEVER = [(809, 128, 429), (1_000_000, 128, 5), (10, 128, 3_000)]


@pytest.mark.parametrize(
    ("training", "pairs", "batch", "passes"),
    [*((ContrastTraining, *row) for row in CONTRAST), *((RetreeverTraining, *row) for row in RETREEVER)],
)
def test_automatic_epochs_make_enough_steps(training, pairs, batch, passes):
    """300 steps, and no fewer than ten passes; of ReTreever's tree 3,000 and five."""
    spec = training(type="contrast" if training is ContrastTraining else "retreever", batch_size=batch)
    assert spec.passes(pairs) == passes
    assert spec.model_copy(update={"epochs": 7}).passes(pairs) == 7


@pytest.mark.parametrize(
    ("documents", "branching"),
    [(1, 2), (8, 2), (9, 4), (4096, 16), (4097, 32), (1_000_000, 128)],
)
def test_automatic_branching_is_the_power_of_two_from_the_cube_root_on(documents, branching):
    assert TreeShape(branching="auto").children(documents) == branching
    assert TreeShape(branching=7).children(documents) == 7


@pytest.mark.parametrize("router", ["learned_ivf", "ehi"])
def test_a_left_out_section_takes_the_other_s_partner(router):
    train = PARTNER[router]
    for given in (
        {"router": {"type": router}},
        {"train": {"type": train}},
        {"router": {"type": router}, "train": {"epochs": 3}},
        {"router": {"branching": 4}, "train": {"type": train}},
        {"router": None, "train": {"type": train}},
    ):
        spec = job(**given)
        assert (spec.train.type, spec.router.type) == (train, router)
    assert job(router={"type": router}, train={"epochs": 3}).train.epochs == 3
    assert job() == job(train={"type": "contrast"}, router={"type": "learned_ivf"})


@pytest.mark.parametrize(
    ("pairs", "train", "router", "phases"),
    [
        (2560, "contrast", "learned_ivf", {"encoder": 30, "router": 5}),
        (0, "contrast", "learned_ivf", {"router": 0}),
        (2560, "ehi", "ehi", {"joint": 20}),
        (0, "ehi", "ehi", {"joint": 20}),
        (2560, "hce", "learned_ivf", {"encoder": 30, "router": 5}),
        (0, "hce", "learned_ivf", {"encoder": 15, "router": 0}),
        (2560, "hce", "hce", {"encoder": 30}),
        (0, "hce", "hce", {"encoder": 15}),
    ],
)
def test_the_phases_of_a_training(pairs, train, router, phases):
    """By 2,560 judged pairs or none, over 5,120 documents."""
    found = job(train={"type": train}, router={"type": router}).phases(pairs, 5120)
    assert found == phases
    assert list(found) == list(phases)


def test_retreevers_encoder_learns_from_judged_pairs_alone():
    spec = RetreeverTraining(type="retreever")
    assert list(spec.phases(100, 1_000)) == ["encoder", "adapter", "tree"]
    assert list(spec.phases(0, 1_000)) == ["adapter", "tree"]


def test_leaves_of_hce_are_nodes_of_its_tree():
    tree = {"branching": 8, "levels": 3}
    own = {"train": {"type": "hce", "tree": tree}, "router": {"type": "hce"}}
    assert [job(**own).leaves(documents) for documents in (5183, 4096, 4097)] == [81, 512, 65]
    assert job(train={"type": "hce"}, router={"type": "hce"}).leaves(5183) == 648
    assert job(train={"type": "hce", "tree": tree}).leaves(5183) == job().leaves(5183)


@pytest.mark.parametrize(
    ("tree", "documents", "said"),
    [
        ({"branching": 50}, 50, r"train\.tree\.branching: got 50 .*; allowed: fewer"),
        ({"branching": 4, "levels": 3}, 64, r"train\.tree\.levels: got 3; allowed: at most 2"),
        ({"branching": 4, "levels": 2}, 16, r"train\.tree\.levels: got 2; allowed: at most 1"),
    ],
)
def test_a_tree_that_does_not_fit_the_documents_is_refused(tree, documents, said):
    spec = job(train={"type": "hce", "tree": tree})
    spec.check_leaves(100_000)
    with pytest.raises(InputError, match=said):
        spec.check_leaves(documents)


@pytest.mark.parametrize("weight", [None, 0.0, 0.4])
@pytest.mark.parametrize("words", [True, False])
def test_a_settled_spec_is_one_that_can_be_read_again(words, weight):
    """Searches open an index by the settled spec, which current.json holds."""
    settled = job(index={"words": words}).settled(weight)
    assert JobSpec.model_validate(settled.model_dump(mode="json", by_alias=True)) == settled
    assert settled.search.mode == ("hybrid" if words and weight != 0 else "dense")
