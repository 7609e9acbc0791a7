"""Whether a trained encoder is kept: what decides, which queries are asked, and that the base encoder comes back."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rayhier.dataset.documents import Documents
from rayhier.model import adoption as model_adoption
from rayhier.model.adoption import Adoption
from rayhier.model.encoder import ResidualHead
from rayhier.search.words.bm25 import Bm25Index
from rayhier.search.words.fusion_weight import WEIGHTS, best
from rayhier.spec.train import ContrastTraining
from rayhier.train import adopt
from rayhier.train.adopt import Searches, at_best, decide, folds, needs_folds, weights
from rayhier.train.contrast import Contrast
from rayhier.train.tower import HeadTower

from .conftest import M
from .driver import Driver, run

CPU = torch.device("cpu")
SPEC = ContrastTraining(type="contrast", epochs=10, batch_size=32, anchor=0.5)


def documents(problem):
    return Documents(problem.ids, problem.documents)


@pytest.fixture
def named(problem):
    examples = problem.examples()
    return replace(examples, query_texts=[f"query {number}" for number in range(len(examples.query_QM))])


@pytest.fixture
def make(problem):
    return partial(Contrast, pseudo=None, spec=SPEC, seed=0, measure=problem.exact())


@pytest.fixture
def phase(make, named, problem):
    trained = make(HeadTower(ResidualHead(M), problem.stored(), CPU), named)
    carried_out("encoder", trained)
    return trained


def words_of(problem):
    """Makes the index of documents by their numbers: each shares a word with the query of its number."""
    return partial(Bm25Index, [f"word{row} common" for row in range(len(problem.ids))])


def untrained(problem):
    return weights(ResidualHead(M))


def carried_out(_, phase):
    loop = Driver(phase)
    run(loop)
    loop.restore_best()


@pytest.mark.parametrize(
    ("gains", "adopted"),
    [
        ([0.1, 0.1, 0.1, 0.2], True),
        ([0.9], False),
        ([], False),
        ([0.4, -0.3, 0.0, 0.0], False),
        *[([0.3] + [0.0] * others, False) for others in (1, 39)],
    ],
)
def test_only_a_sure_gain_is_kept(gains, adopted):
    base_Q = np.full(len(gains), 0.4)
    adoption = Adoption.of("dev queries", base_Q, base_Q + np.array(gains))
    assert (adoption.adopted, adoption.queries) == (adopted, len(gains))
    if len(gains) > 1:
        assert adoption.gain == pytest.approx(np.mean(gains), abs=1e-6)
        assert adoption.error == pytest.approx(np.std(gains, ddof=1) / len(gains) ** 0.5, abs=1e-6)
    assert ("is kept" in adoption.sentence) == adopted


@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=12), st.integers(1, 40))
def test_a_query_that_is_asked_again_tells_nothing_new(gains, times):
    base_Q, gain_Q = np.full(len(gains), 0.4), np.array(gains)
    once = Adoption.of("dev queries", base_Q, base_Q + gain_Q)
    base_Q, gain_Q, family_Q = (np.repeat(array, times) for array in (base_Q, gain_Q, np.arange(len(gains))))
    often = Adoption.of("dev queries", base_Q, base_Q + gain_Q, family_Q=family_Q)
    assert (often.adopted, often.queries) == (once.adopted, times * once.queries)
    assert (often.gain, often.error) == (pytest.approx(once.gain, abs=2e-6), pytest.approx(once.error, abs=2e-6))


def test_folds_divide_the_queries_and_leak_no_pair(named, problem, monkeypatch):
    monkeypatch.setattr(adopt, "ENOUGH", 30)
    few = [len(fold.query_F) for fold in folds(named, documents(problem))]
    assert sum(few[:-1]) < 30 <= sum(few)
    monkeypatch.undo()
    made = list(folds(named, documents(problem)))
    assert len(made) == adopt.FOLDS
    all_F = np.concatenate([fold.query_F for fold in made])
    assert sorted(all_F.tolist()) == sorted(set(named.pair_P2[:, 0].tolist()))
    for fold in made:
        assert not np.isin(fold.examples.pair_P2[:, 0], fold.query_F).any()
        assert len(fold.examples.pair_P2) + sum(map(len, fold.queries.grades.values())) == len(named.pair_P2)
        for query, name in zip(fold.query_F.tolist(), fold.queries.ids, strict=True):
            answers = {problem.ids[document] for asked, document in named.pair_P2.tolist() if asked == query}
            assert set(fold.queries.grades[name]) == answers
    generated_P2 = named.pair_P2[named.pair_P2[:, 0] >= 20]
    made = list(folds(replace(named, judged=20), documents(problem)))
    assert sorted(np.concatenate([fold.query_F for fold in made]).tolist()) == list(range(20))
    for fold in made:  # generated ones are not asked, but they teach
        assert set(map(tuple, generated_P2.tolist())) <= set(map(tuple, fold.examples.pair_P2.tolist()))


def test_few_dev_queries_and_enough_train_queries_need_folds(named):
    assert needs_folds(named, 299)
    assert not needs_folds(named, 300)
    assert [needs_folds(replace(named, judged=judged), 299) for judged in (9, 20)] == [False, True]
    assert not needs_folds(replace(named, same=True), 299)


@pytest.mark.parametrize("adopted", [True, False])
def test_what_each_weight_found_is_kept_of_the_encoder_that_stays(phase, make, named, problem, monkeypatch, adopted):
    if not adopted:
        monkeypatch.setattr(model_adoption, "ERRORS", 1e9)
    searches, asked = Searches(documents(problem), words_of(problem)), []
    values = searches.values
    monkeypatch.setattr(searches, "values", lambda *args: asked.append(values(*args)) or asked[-1])
    said = replace(named, query_texts=[f"word{number}" for number in range(len(named.query_texts))])
    monkeypatch.setattr(phase, "examples", said)
    adoption = decide(phase, untrained(problem), problem.dev_queries(), searches, "dev queries", make, carried_out)
    base_WQ, trained_WQ = (np.concatenate(asked[state::2], axis=1) for state in (0, 1))
    assert adoption.adopted == adopted
    assert adoption.base == pytest.approx(at_best(base_WQ).mean(), abs=1e-5)
    kept_W = (trained_WQ if adopted else base_WQ).mean(axis=1)
    assert list(adoption.measured) == [f"{weight:g}" for weight in WEIGHTS]
    np.testing.assert_allclose(list(adoption.measured.values()), kept_W, atol=1e-5)


def test_dev_queries_decide_where_they_are_many(phase, make, problem, monkeypatch):
    monkeypatch.setattr(adopt, "ENOUGH", 10)
    dev, searches = problem.dev_queries(), Searches(documents(problem))
    adoption = decide(phase, untrained(problem), dev, searches, "pseudo-queries", make, carried_out)
    assert (adoption.adopted, adoption.source, adoption.queries) == (True, "pseudo-queries", len(problem.dev))
    exact, base = problem.exact(), problem.stored()
    before = exact(base["document"], base["dev"]).values["nDCG@10"]
    after = exact(phase.documents(), phase.pairs.side("dev")).values["nDCG@10"]
    assert (adoption.base, adoption.gain) == (pytest.approx(before, abs=1e-5), pytest.approx(after - before, abs=1e-5))


@pytest.mark.parametrize(("train_queries", "source"), [(None, "train queries in folds"), (9, "dev queries")])
def test_few_dev_queries_keep_no_transformer_without_folds(
    phase, make, named, problem, monkeypatch, train_queries, source
):
    """They would keep a head. Nine train queries are too few for folds."""
    monkeypatch.setattr(phase, "examples", replace(named, judged=train_queries))
    arguments = untrained(problem), problem.dev_queries(), Searches(documents(problem)), "dev queries", make
    head = decide(phase, *arguments, carried_out)
    reading = {"__getattr__": lambda _, name, tower=phase.tower: getattr(tower, name)}
    monkeypatch.setattr(phase, "tower", type("Transformer", (), reading)())
    adoption = decide(phase, *arguments, carried_out)
    assert (head.adopted, head.source, adoption.source) == (True, source, source)
    assert adoption == head if train_queries is None else (adoption.adopted, adoption.queries) == (False, 0)


def test_hybrid_values_are_those_of_plain_loops(problem):
    rng = np.random.default_rng(3)
    dev = replace(problem.dev_queries(), texts=[f"word{row + rng.integers(2)} common" for row in problem.dev])
    words = words_of(problem)()
    value_WQ = []
    for weight in WEIGHTS:
        value_Q = []
        for row, text in zip(problem.dev, dev.texts, strict=True):
            bm25_N = words.scores(text)
            listed = np.argsort(-bm25_N, kind="stable")[:100]
            bm25_N = np.where(np.isin(np.arange(len(bm25_N)), listed), bm25_N, 0)
            score_N = problem.documents @ problem.queries[row]
            near = np.argsort(-score_N, kind="stable")[:100]
            score_N = score_N + weight * bm25_N / max(bm25_N.max(), 1e-9)
            candidates = np.union1d(near, listed)
            rank = int((score_N[candidates] > score_N[row]).sum()) if row in candidates else 99
            value_Q.append(1 / np.log2(rank + 2) if rank < 10 else 0.0)
        value_WQ.append(value_Q)
    searches = Searches(documents(problem), lambda: words)
    assert (searches.mode, Searches(documents(problem)).mode) == ("hybrid", "dense")
    hybrid_WQ = searches.values(dev, dev.vector_QM, problem.documents)
    np.testing.assert_allclose(hybrid_WQ.mean(axis=1), np.mean(value_WQ, axis=1), atol=0.01)
    chosen = WEIGHTS.index(best(np.array(value_WQ)))
    assert at_best(hybrid_WQ).mean() == pytest.approx(np.mean(value_WQ[chosen]), abs=0.01)
