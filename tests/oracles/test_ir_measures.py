"""Judge and TREC files against pytrec_eval and against numbers worked out by hand."""

from math import log2

import ir_measures
import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval

from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.evaluate.output import trec

DOCUMENTS = [f"d{number:03d}" for number in range(150)]
IDS = np.array(DOCUMENTS, dtype=object)
NONE = np.empty((0, 0), np.float32)


def ranked_rows(scores, rows, ids):
    """Rows of some ids; what they cost is not judged."""
    return whole_scan(scores, rows, pa.array(ids.tolist()), 0)


def ranking(lists):
    """Rows with falling scores; -1 fills up."""
    width = max(len(rows) for rows in lists)
    row_QK = np.array([[*rows, *[-1] * (width - len(rows))] for rows in lists], dtype=np.int64)
    score_QK = np.where(row_QK >= 0, 1 - 0.01 * np.arange(width), -np.inf).astype(np.float32)
    return ranked_rows(score_QK, row_QK, IDS)


def random_case(seed, ties):
    rng = np.random.default_rng(seed)
    ids = [f"q{number}" for number in range(25)]
    grades = {
        query: {
            DOCUMENTS[row]: int(grade)
            for row, grade in zip(rng.choice(150, 30, replace=False), rng.integers(0, 4, 30), strict=True)
        }
        for query in ids
    }
    rows = np.stack([rng.permutation(150)[:120] for _ in ids])
    scores = -np.sort(-rng.random((25, 120)).astype(np.float32), axis=1)
    if ties:
        scores = np.round(scores * 20) / 20
    for number, kept in enumerate(rng.integers(1, 121, 25)):
        rows[number, kept:], scores[number, kept:] = -1, -np.inf
    return Queries(ids, NONE, grades), ranked_rows(scores.astype(np.float32), rows, IDS)


def pytrec(queries, run):
    names = {
        "nDCG@10": "ndcg_cut_10",
        "R@10": "recall_10",
        "R@100": "recall_100",
        "AP@100": "map_cut_100",
        "P@5": "P_5",
    }
    found = pytrec_eval.RelevanceEvaluator(queries.grades, set(names.values())).evaluate(run)
    return {ours: np.mean([values[theirs] for values in found.values()]) for ours, theirs in names.items()}


def placed(queries, ranking):
    """Give every document its place as its score, where ties go by id: no two are equal for trec_eval."""
    places = {}
    for query, rows, scores in zip(queries.ids, ranking.row_QK, ranking.score_QK, strict=True):
        found = sorted((-score, ranking.ids[row]) for row, score in zip(rows, scores, strict=True) if row >= 0)
        places[query] = {document: -float(place) for place, (_, document) in enumerate(found)}
    return places


def reciprocal_rank(queries, ranking):
    found = []
    for query, rows in zip(queries.ids, ranking.row_QK, strict=True):
        right = [
            place for place, row in enumerate(rows[:10], 1) if row >= 0 and queries.grades[query].get(DOCUMENTS[row])
        ]
        found.append(1 / right[0] if right else 0.0)
    return np.mean(found)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_judge_is_pytrec_eval(seed, ties):
    queries, ranked = random_case(seed, ties)
    wanted = pytrec(queries, placed(queries, ranked))
    found = Judge(queries, list(wanted)).mean(ranked)
    assert found == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_reciprocal_rank_by_its_definition(seed, ties):
    """It reads the places where documents are shown."""
    queries, ranked = random_case(seed, ties)
    assert Judge(queries, ["RR@10"]).mean(ranked)["RR@10"] == pytest.approx(reciprocal_rank(queries, ranked))


# q1: d000 grade 2, d001 grade 1, d002 grade 0; q2: d003 and d004; q3: d005. Six lines.
GRADES = {"q1": {"d000": 2, "d001": 1, "d002": 0}, "q2": {"d003": 1, "d004": 1}, "q3": {"d005": 1}}
BY_HAND = {
    # Found: q1 d002 d001 (d000 missed), q2 d009 d003 … d004 in place 11, q3 nothing right.
    "nDCG@10": (
        (1 / log2(3)) / (2 + 1 / log2(3)),
        (1 / log2(3)) / (1 + 1 / log2(3)),
        0,
    ),
    "RR@10": (1 / 2, 1 / 2, 0),
    "R@10": (1 / 2, 1 / 2, 0),
    "R@100": (1 / 2, 1, 0),
}


@pytest.mark.parametrize("measure", BY_HAND)
def test_by_hand(measure):
    ranked = ranking([[2, 1], [9, 3, *range(10, 18), 4], [7]])
    judge = Judge(Queries(["q1", "q2", "q3"], NONE, GRADES), [measure])
    assert judge.mean(ranked)[measure] == pytest.approx(sum(BY_HAND[measure]) / 3)


def test_a_query_that_finds_nothing_counts_as_zero():
    judge = Judge(Queries(["q1", "q3"], NONE, {query: GRADES[query] for query in ("q1", "q3")}), ["R@10"])
    assert judge.mean(ranking([[0, 1], []])) == {"R@10": 0.5}


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
    ranked = ranked_rows(np.array([[higher, 0.5]], np.float32), np.array([[0, 1]]), IDS)
    judge = Judge(Queries(["q"], NONE, {"q": {"d000": 1}}), ["nDCG@10"])
    assert judge.mean(ranked) == {"nDCG@10": 1}
    (tmp_path / "run.trec").write_text(trec("ehi", judge.run(ranked)))
    read = ir_measures.read_trec_run(str(tmp_path / "run.trec"))
    assert list(ir_measures.calc_aggregate([ir_measures.nDCG @ 10], {"q": {"d000": 1}}, read).values()) == [1]
