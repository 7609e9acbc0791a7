"""Judge and TREC files against pytrec_eval and against numbers worked out by hand."""

import ir_measures
import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval

from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking, whole_scan
from rayhier.evaluate.files import trec

DOCUMENTS = [f"d{number:03d}" for number in range(150)]
IDS = pa.array(DOCUMENTS)
NONE = np.empty((0, 0), np.float32)


def random_case(seed, ties):
    rng = np.random.default_rng(seed)
    ids = [f"q{number}" for number in range(25)]
    grades = {query: {DOCUMENTS[row]: int(row) % 4 for row in rng.choice(150, 30, replace=False)} for query in ids}
    rows = np.stack([rng.permutation(150)[:120] for _ in ids])
    scores = -np.sort(-rng.random((25, 120)).astype(np.float32), axis=1)
    if ties:
        scores = np.round(scores * 20) / 20
    for number, kept in enumerate(rng.integers(1, 121, 25)):
        rows[number, kept:], scores[number, kept:] = -1, -np.inf
    return Queries(ids, NONE, grades), whole_scan(scores.astype(np.float32), rows, IDS, 0)


def placed(queries, ranking):
    """Give every document its place as its score, where ties go by id: no two are equal for trec_eval."""
    places = {}
    for query, rows, scores in zip(queries.ids, ranking.row_QK, ranking.score_QK, strict=True):
        found = sorted((-score, ranking.ids[row]) for row, score in zip(rows, scores, strict=True) if row >= 0)
        places[query] = {document: -float(place) for place, (_, document) in enumerate(found)}
    return places


NAMES = {"nDCG@10": "ndcg_cut_10", "R@10": "recall_10", "R@100": "recall_100", "AP@100": "map_cut_100", "P@5": "P_5"}


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_judge_is_pytrec_eval(seed, ties):
    queries, ranked = random_case(seed, ties)
    run = placed(queries, ranked)
    found = pytrec_eval.RelevanceEvaluator(queries.grades, set(NAMES.values())).evaluate(run)
    wanted = {ours: np.mean([values[theirs] for values in found.values()]) for ours, theirs in NAMES.items()}
    assert Judge(queries, list(wanted)).mean(ranked) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_trec_files_carry_the_same_measures(seed, tmp_path):
    queries, ranked = random_case(seed, ties=True)
    measures = ["nDCG@10", "RR@10", "R@10", "R@100"]
    judge = Judge(queries, measures)
    (tmp_path / "run.trec").write_text(trec("ehi", judge.run(ranked)))
    read = ir_measures.read_trec_run(str(tmp_path / "run.trec"))
    found = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in measures], queries.grades, read)
    assert {str(measure): value for measure, value in found.items()} == pytest.approx(judge.mean(ranked))


def test_trec_files_keep_scores_apart_that_differ_in_the_last_bit(tmp_path):
    higher = np.nextafter(np.float32(0.5), np.float32(1))
    ranked = whole_scan(np.array([[higher, 0.5]], np.float32), np.array([[0, 1]]), IDS, 0)
    judge = Judge(Queries(["q"], NONE, {"q": {"d000": 1}}), ["nDCG@10"])
    assert judge.mean(ranked) == {"nDCG@10": 1}
    (tmp_path / "run.trec").write_text(trec("ehi", judge.run(ranked)))
    read = ir_measures.read_trec_run(str(tmp_path / "run.trec"))
    assert list(ir_measures.calc_aggregate([ir_measures.nDCG @ 10], {"q": {"d000": 1}}, read).values()) == [1]


def test_a_ranking_without_results_has_zero():
    judge = Judge(Queries(["q"], NONE, {"q": {"d000": 1}}), ["nDCG@10", "RR@10", "AP@10", "P@10", "R@10", "Success@10"])
    assert set(judge.mean(Ranking.none(1)).values()) == {0.0}
