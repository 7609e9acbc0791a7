"""What sections decide together: which training goes with which router, and what follows from the two."""

import pytest
from pydantic import ValidationError

from rayhier.spec import InputError, JobSpec
from rayhier.spec.train import ContrastTraining, RetreeverTraining, TreeShape

from ...toys import job

PARTNER = {"learned_ivf": "contrast", "ehi": "ehi"}


@pytest.mark.parametrize(("router", "leaves"), [("learned_ivf", 2), ("ehi", 1), ("hce", 1)])
def test_leaves_per_document(router, leaves):
    given = {"type": router}
    assert job(router=given).leaves_per_document == leaves
    assert job(index={"leaves_per_document": "auto"}, router=given).leaves_per_document == leaves
    assert [job(index={"leaves_per_document": n}, router=given).leaves_per_document for n in (1, 2)] == [1, 2]


@pytest.mark.parametrize(
    ("router", "index", "rows"),
    [
        ("learned_ivf", {}, 1.5),
        ("learned_ivf", {"leaves_per_document": 1}, 1),
        ("ehi", {}, 1),
        ("ehi", {"leaves_per_document": 2}, 2),
    ],
)
def test_rows_per_document(router, index, rows):
    assert job(index=index, router={"type": router}).rows_per_document == rows


CONTRAST = [(827, 256, 75), (827, 64, 24), (36_000, 256, 10), (5, 256, 300), (0, 256, 300)]
RETREEVER = [(809, 128, 429), (60_000, 128, 7), (1_000_000, 128, 5), (10, 128, 3_000)]


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
    [(1, 2), (8, 2), (9, 4), (64, 4), (65, 8), (512, 8), (513, 16), (4096, 16), (4097, 32), (1_000_000, 128)],
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


def test_without_either_it_is_contrast_and_a_learned_ivf():
    spec = job()
    assert (spec.train.type, spec.router.type) == ("contrast", "learned_ivf")
    assert spec == job(train={"type": "contrast"}, router={"type": "learned_ivf"})


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


def test_leaves_of_hce_are_nodes_of_its_tree():
    tree = {"branching": 8, "levels": 3}
    own = {"train": {"type": "hce", "tree": tree}, "router": {"type": "hce"}}
    assert [job(**own).leaves(documents) for documents in (5183, 4096, 4097)] == [81, 512, 65]
    assert job(train={"type": "hce"}, router={"type": "hce"}).leaves(5183) == 648
    assert job(train={"type": "hce", "tree": tree}).leaves(5183) == job().leaves(5183)


@pytest.mark.parametrize(
    ("tree", "documents", "said"),
    [
        (
            {"branching": 50},
            50,
            "train.tree.branching: got 50 for 50 documents; allowed: fewer than there are documents",
        ),
        ({"branching": 4, "levels": 3}, 64, "train.tree.levels: got 3; allowed: at most 2, "),
        ({"branching": 4, "levels": 2}, 16, "train.tree.levels: got 2; allowed: at most 1, "),
    ],
)
def test_a_tree_that_does_not_fit_the_documents_is_refused(tree, documents, said):
    spec = job(train={"type": "hce", "tree": tree})
    spec.check_leaves(100_000)
    with pytest.raises(InputError) as refused:
        spec.check_leaves(documents)
    assert str(refused.value).startswith(said)


REFUSED = {
    "a hierarchy of the paper's form": (
        {"train": {"type": "hce", "form": "paper", "hierarchy": 0.5, "hard_negatives": {"source": "none"}}},
        "hierarchy only where form is single",
    ),
    "mined negatives of the paper's form": (
        {"train": {"type": "hce", "form": "paper"}},
        "hard_negatives: {source: none} where form is paper",
    ),
    "a tree that nothing looks at": (
        {"train": {"type": "hce", "hierarchy": 0, "siblings": 0, "tree": {"branching": 4}}},
        "train.tree: got settings; allowed: the default; others only where hierarchy or siblings is above 0",
    ),
    "pseudo-queries of judged pairs": (
        {"train": {"type": "hce", "objective": "supervised", "pseudo_queries": {"spans": 1}}},
        "pseudo_queries only where objective is joint or documents",
    ),
    "mined negatives without judged pairs": (
        {"train": {"type": "hce", "objective": "documents", "hard_negatives": {"refresh": 2}}},
        "hard_negatives only where objective is not documents",
    ),
    "spans of titles": (
        {"train": {"type": "hce", "pseudo_queries": {"source": "titles", "length": 32}}},
        "length only where source is not titles",
    ),
    "spans that no document is longer than": (
        {"train": {"type": "hce", "pseudo_queries": {"length": 256}}},
        "train.pseudo_queries.length: got 256 with encoder.max_length 256, which leaves no document longer",
    ),
    "a hierarchy without levels": (
        {"train": {"type": "hce", "hierarchy": 0.5, "tree": {"levels": 0}}},
        "hierarchy only where tree.levels is above 0",
    ),
    "how a tree without levels branches": (
        {"train": {"type": "hce", "tree": {"levels": 0, "branching": 4}}},
        "train.tree.branching: got 4; allowed: the default; others only where levels is not 0",
    ),
    "SimCSE with a head": (
        {"train": {"type": "hce", "pseudo_queries": {"source": "simcse"}}},
        "train.pseudo_queries.source: got 'simcse' with encoder.train head",
    ),
    "a whitened start without pseudo-queries": (
        {"train": {"type": "hce", "objective": "supervised", "start": "whitened"}},
        "start base or auto where objective is supervised",
    ),
    "a whitened start of a transformer": (
        {"train": {"type": "hce", "start": "whitened"}, "encoder": {"model": "package:none", "train": "all"}},
        "train.start: got 'whitened' with encoder.train all",
    ),
    "leaves of no level": (
        {"train": {"type": "hce", "tree": {"levels": 0}}, "router": {"type": "hce"}},
        "train.tree.levels: got 0 with router.type hce",
    ),
    "mined negatives of no source": (
        {"train": {"type": "contrast", "hard_negatives": {"source": "none", "per_query": 3}}},
        "per_query only where source is not none",
    ),
    "contrast with HCE's nodes": (
        {"train": {"type": "contrast"}, "router": {"type": "hce"}},
        "train.type: got 'contrast' with router.type 'hce'; allowed: hce, or router.type learned_ivf",
    ),
    "contrast with EHI's tree": (
        {"train": {"type": "contrast"}, "router": {"type": "ehi"}},
        "train.type: got 'contrast' with router.type 'ehi'; allowed: ehi, or router.type learned_ivf",
    ),
    "EHI's losses with a learned IVF": (
        {"train": {"type": "ehi"}, "router": {"type": "learned_ivf"}},
        "train.type: got 'ehi' with router.type 'learned_ivf'; allowed: contrast, hce, or router.type ehi",
    ),
    "EHI's router's rate": ({"train": {"type": "contrast", "router_lr": 1e-3}}, "train.contrast.router_lr"),
    "EHI's losses": ({"train": {"type": "contrast", "loss": {"semantic": 0.1}}}, "train.contrast.loss"),
    "EHI's negatives": (
        {"train": {"type": "contrast", "hard_negatives": {"source": "query_leaves"}}},
        "train.contrast.hard_negatives.source",
    ),
    "a contrast's temperature": ({"train": {"type": "ehi", "temperature": 0.1}}, "train.ehi.temperature"),
    "how often nothing is mined": (
        {"train": {"type": "ehi", "hard_negatives": {"source": "none", "refresh": 2}}},
        "refresh only where source is not none",
    ),
    "a rate of an encoder that nothing trains": (
        {"train": {"type": "contrast", "objective": "documents", "epochs": 3, "encoder_lr": 0.1}},
        "epochs, encoder_lr only where objective is not documents",
    ),
    "a transformer that nothing trains": (
        {"train": {"objective": "documents"}, "encoder": {"model": "package:none", "train": "all"}},
        "encoder.train: got 'all'; allowed: the default; others only where train.objective is not documents",
    ),
    "losses without any weight": (
        {"train": {"type": "ehi", "loss": {"semantic": 0, "indexing": 0, "intra_leaf": 0}}},
        "with none of them nothing is learned",
    ),
    "lists where no system has any": (
        {"index": {"leaves_per_document": 1}, "evaluate": {"baselines": ["exact", "hnsw"], "lists": 64}},
        "evaluate.lists: got 64; allowed: the default; others only with one of the baselines faiss_ivf",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_refused(name):
    given, said = REFUSED[name]
    with pytest.raises(ValidationError) as refused:
        job(**given)
    assert said in str(refused.value)


@pytest.mark.parametrize("weight", [None, 0.0, 0.4])
@pytest.mark.parametrize("words", [True, False])
def test_a_settled_spec_is_one_that_can_be_read_again(words, weight):
    """Searches open an index by the settled spec, which current.json holds."""
    settled = job(index={"words": words}).settled(weight)
    assert JobSpec.model_validate(settled.model_dump(mode="json", by_alias=True)) == settled
    assert settled.search.mode == ("hybrid" if words and weight != 0 else "dense")
