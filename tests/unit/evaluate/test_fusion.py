"""The weight of BM25: which one dev queries choose, and that it is the one that searches use."""

import numpy as np
import pytest

from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.evaluate.calibrate import MEASURE, choose_weight
from rayhier.model.adoption import Adoption
from rayhier.model.encoded import Encoded
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.words.fusion_weight import WEIGHTS, FusionWeight, best
from rayhier.search.words.hybrid import WordScan, fused
from rayhier.spec import JobSpec
from rayhier.spec.search import FUSED, TAUGHT_WEIGHT, UNTAUGHT_WEIGHT, HybridSpec
from rayhier.storage.leaf_map import LeafMap

from ..search.maps import leaf_rows

N, M, LEAVES, Q = 200, 8, 4, 60
SPEC = {"name": "t", "workdir": "w", "corpus": {"type": "python_docs"}, "encoder": {"model": "package:none"}}


class Unmapped:
    def encode_stored(self, base_NM, texts, role):
        return Encoded(base_NM)


@pytest.fixture
def world(unit, tmp_path, write_map):
    """Documents with a word of their own, and queries near one, some with its word and some with its neighbour's."""
    rng = np.random.default_rng(0)
    vector_NM = unit(rng, N, M)
    leaves = [[leaf] for leaf in np.sort(rng.integers(LEAVES, size=N)).tolist()]
    ids, texts = [f"d{n:03d}" for n in range(N)], [f"own{n} tree" for n in range(N)]
    write_map(tmp_path / "map", leaf_rows(leaves, vector_NM, doc_id=ids, text=texts), LEAVES, 2)

    def queries(right, noise, count=Q):
        row_Q = rng.integers(N, size=count)
        query_QM = vector_NM[row_Q] + noise * rng.normal(size=(count, M)).astype(np.float32)
        query_QM /= np.linalg.norm(query_QM, axis=1, keepdims=True)
        nearest_Q = np.argsort(-(vector_NM[row_Q] @ vector_NM.T), axis=1)[:, 1]
        word_Q = np.where(rng.random(count) < right, row_Q, nearest_Q)
        names = [f"q{number}" for number in range(count)]
        grades = {name: {f"d{row:03d}": 1} for name, row in zip(names, row_Q, strict=True)}
        return Queries(names, query_QM.astype(np.float32), grades, [f"own{word} of" for word in word_Q])

    return LeafMap.open(tmp_path / "map"), queries


def chosen(world, dev, adoption=None, **search):
    return choose_weight(JobSpec.model_validate({**SPEC, "search": search}), dev, Unmapped(), world[0], adoption)


def told(best, queries=300, source="train queries in folds", worst=0.2):
    """An adoption whose queries found most with one weight."""
    measured = {f"{weight:g}": 0.8 if weight == best else worst for weight in WEIGHTS}
    about = {"adopted": True, "mode": "hybrid", "measure": MEASURE, "base": 0.1, "gain": 0.7, "error": 0.01}
    return Adoption(source=source, queries=queries, measured=measured, **about)


def test_words_that_are_always_wrong_get_no_weight_and_those_that_are_right_one(world):
    choice = chosen(world, world[1](right=0.0, noise=0.2, count=300))
    assert choice.measured["0"] > choice.measured["0.15"] + 0.02
    assert choice.weight == 0.0
    choice = chosen(world, world[1](right=1.0, noise=1.0))
    assert choice.weight >= TAUGHT_WEIGHT
    assert choice.measured[f"{choice.weight:g}"] > choice.measured["0"] + 0.2


def test_measured_is_what_searches_find(world):
    leaf_map, queries = world
    none = Queries([], np.zeros((0, M), np.float32), {})
    assert chosen(world, none) == FusionWeight(weight=UNTAUGHT_WEIGHT, queries=0, measure=MEASURE, measured={})
    dev = queries(right=0.5, noise=0.6)
    choice = chosen(world, dev)
    leaves = LeafScan.mapped(leaf_map)
    dense = leaves.scan(dev.vector_QM, np.tile(np.arange(LEAVES), (Q, 1)), FUSED)
    parts = [WordScan.mapped(leaf_map, leaves).scan(dev.texts, dev.vector_QM, FUSED)]
    for weight in WEIGHTS:
        both = fused(dense, parts, 10, HybridSpec(weight=weight), FUSED)
        assert Judge(dev, [MEASURE]).mean(both)[MEASURE] == pytest.approx(choice.measured[f"{weight:g}"], abs=1e-6)


def test_train_queries_in_folds_choose_too(world):
    dev = world[1](right=0.0, noise=0.2, count=20)
    alone, helped = chosen(world, dev), chosen(world, dev, told(best=0.4))
    assert alone.weight < 0.4 == helped.weight
    assert (alone.folded, helped.queries, helped.folded) == (0, 20, 300)
    for weight, mean in alone.measured.items():
        both = (20 * mean + 300 * told(best=0.4).measured[weight]) / 320
        assert helped.measured[weight] == pytest.approx(both, abs=1e-5)
    assert helped.chosen_by == "20 dev queries and 300 train queries in folds"
    assert alone.chosen_by == "20 dev queries"


def test_the_more_queries_the_less_a_weight_has_to_win():
    value_W = np.full(len(WEIGHTS), 0.5)
    value_W[WEIGHTS.index(0.05)] += 0.02
    chosen_by = [best(np.tile(value_W[:, None], count)) for count in (1, 20, 50, 70, 1_000)]
    assert chosen_by == [TAUGHT_WEIGHT] * 3 + [0.05] * 2  # log² (.1 / .3) / .02 = 60
