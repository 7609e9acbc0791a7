"""What sections decide together: which training goes with which router, and what follows from the two."""

import pytest
from pydantic import TypeAdapter

from rayhier.spec import InputError, JobSpec
from rayhier.spec.router import RouterSpec
from rayhier.spec.search import SearchSpec
from rayhier.spec.train import ContrastTraining, RetreeverTraining, TreeShape

from ...toys import job


def test_leaves_and_rows_per_document():
    wanted = {
        ("learned_ivf", "auto"): (2, 1.5),
        ("learned_ivf", 1): (1, 1),
        ("ehi", "auto"): (1, 1),
        ("ehi", 2): (2, 2),
    }
    for (router, given), (leaves, rows) in wanted.items():
        spec = job(router={"type": router}, index={"leaves_per_document": given})
        assert (spec.leaves_per_document, spec.rows_per_document) == (leaves, rows)


def test_automatic_epochs_make_enough_steps():
    """300 steps, and no fewer than ten passes; of ReTreever's tree 3,000 and five."""
    contrast = ContrastTraining(type="contrast", batch_size=256)
    assert [contrast.passes(pairs) for pairs in (0, 827, 36_000)] == [300, 75, 10]
    tree = RetreeverTraining(type="retreever", batch_size=128)
    assert [tree.passes(pairs) for pairs in (10, 809, 1_000_000)] == [3_000, 429, 5]
    assert contrast.model_copy(update={"epochs": 7}).passes(827) == 7


def test_automatic_branching_is_the_power_of_two_from_the_cube_root_on():
    branching = {1: 2, 8: 2, 9: 4, 4096: 16, 4097: 32, 1_000_000: 128}
    assert {documents: TreeShape(branching="auto").children(documents) for documents in branching} == branching


@pytest.mark.parametrize(("router", "train"), [("learned_ivf", "contrast"), ("ehi", "ehi")])
def test_a_left_out_section_takes_the_other_s_partner(router, train):
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
        (0, "contrast", "learned_ivf", {"encoder": 15, "router": 0}),
        (0, "ehi", "ehi", {"joint": 20}),
        (0, "hce", "learned_ivf", {"encoder": 15, "router": 0}),
        (2560, "hce", "hce", {"encoder": 30}),
        (0, "hce", "hce", {"encoder": 15}),
    ],
)
def test_the_phases_of_a_training(pairs, train, router, phases):
    """By 2,560 judged pairs or none, over 5,120 documents."""
    found = job(train={"type": train}, router={"type": router}).phases(pairs, 5120)
    assert list(found.items()) == list(phases.items())
    tree = RetreeverTraining(type="retreever")
    assert list(tree.phases(pairs, 5120)) == (["encoder"] if pairs else []) + ["adapter", "tree"]


def test_leaves_of_hce_are_nodes_of_its_tree():
    tree = {"branching": 8, "levels": 3}
    own = {"train": {"type": "hce", "tree": tree}, "router": {"type": "hce"}}
    assert [job(**own).leaves(documents) for documents in (5183, 4096, 4097)] == [81, 512, 65]
    assert job(train={"type": "hce"}, router={"type": "hce"}).leaves(5183) == 648


@pytest.mark.parametrize(
    ("tree", "documents", "said"),
    [
        ({"branching": 50}, 50, r"train\.tree\.branching: got 50 .*; allowed: fewer"),
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
    settled = job(index={"words": words}).settled(weight)
    assert JobSpec.model_validate(settled.model_dump(mode="json", by_alias=True)) == settled
    assert settled.search.mode == ("hybrid" if words and weight != 0 else "dense")


def test_rows_that_vectors_score_after_codes():
    asked = ({}, 10), ({"how": "level"}, 10), ({"shortlist": 150}, 10), ({"shortlist": 150}, 200)
    assert [SearchSpec.model_validate(section).shortlisted(k) for section, k in asked] == [60, 120, 150, 200]


def router(kind, **given):
    return TypeAdapter(RouterSpec).validate_python({"type": kind, **given})


AUTO = {
    "learned_ivf": {3: 2, 640: 160, 10_000: 2_500, 160_000: 10_000, 1_000_000: 4_000},
    "ehi": {640: 40, 25_600: 1_600, 1_000_000: 10_000},
}
"""Documents -> leaves. Learned IVF: 4 documents a leaf up to 25 √N = 4 N, then 25 √N; 4 √N beyond 200,000, where leaves
hold codes. EHI: 16 documents a leaf up to √N / 10 = 16; at most 100 a leaf."""


@pytest.mark.parametrize("kind", AUTO)
def test_auto(kind):
    for documents, leaves in AUTO[kind].items():
        assert router(kind).leaves(documents) == router(kind).over(documents).leaves(7) == leaves
    assert router(kind, branching=5).leaves(640) == 5
    assert router("ehi", height=2).leaves(1_000_000) == 100**2
