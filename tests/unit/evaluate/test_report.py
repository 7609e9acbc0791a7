"""report.json as DESIGN section 3 has it, and the files beside it."""

import csv
import json
from dataclasses import replace

import ir_measures
import numpy as np
import pytest

from rayhier.evaluate.output import as_markdown, write
from rayhier.evaluate.report import Report
from rayhier.evaluate.tables import reached, table

POINT = {"beam", "visited_mean", "visited_p95", "cost_mean", "leaves_mean", "nDCG@10", "R@10", "R@100", "per_seed"}


@pytest.fixture
def report(spec, evaluation):
    return Report.of(spec, evaluation)


def test_a_curve_is_the_mean_over_seeds_with_each_seed_beside_it(report, tmp_path):
    report.write(tmp_path / "saved.json")
    saved = json.loads((tmp_path / "saved.json").read_text())
    assert (saved["name"], saved["router"], saved["documents"], saved["queries"]) == ("fake", "ehi", 10, 2)
    assert (saved["seeds"], saved["lists"]) == ([3, 5], {"faiss_ivf": 2})
    assert set(saved["systems"]) == {"ehi", "faiss_ivf", "exact"}
    assert all(set(row) == POINT for curve in saved["curves"].values() for row in curve)
    first, second, third = saved["curves"]["ehi"]
    assert [row["beam"] for row in (first, second, third)] == [1, 2, 3]
    assert (first["nDCG@10"], first["R@10"]) == pytest.approx((0.45, 0.225))
    assert (second["visited_mean"], second["visited_p95"], second["cost_mean"]) == pytest.approx((0.6, 0.65, 0.61))
    assert [(row["seed"], row["nDCG@10"], row["beam"]) for row in second["per_seed"]] == [(3, 0.8, 2), (5, 0.9, 2)]


def test_encoders_over_all_queries_and_those_with_new_answers(spec, trained, tmp_path):
    report = Report.of(spec, trained)
    # exact has .65 and .75 in nDCG@10, trained .1 and .3 more.
    found = {
        group: [row.systems[name]["nDCG@10"] for name in ("exact", "exact_same_encoder")]
        for group, row in report.encoders.items()
    }
    assert found == {"all": [0.7, 0.9], "new answers": [0.75, 1.05]}
    report.write(tmp_path / "report.json")
    assert Report.read(tmp_path / "report.json") == report
    text = as_markdown(spec, report)
    assert "| all (2 queries): exact search, base encoder | 0.700 | 0.350 | 0.225 |" in text
    assert "| new answers (1 queries): exact search, the index's encoder | 1.050 | 0.700 | 0.575 |" in text
    assert text.count("| difference | +0.300* | +0.300* | +0.300* |") == 1


def test_the_table_interpolates(report):
    header, rows = table(report, [0.1, 0.4, 1.0], "nDCG@10")
    assert header == ["nDCG@10", "10% visited", "40% visited", "100% visited"]
    assert rows == [
        ["this index (3 leaves)", "", "0.650", "0.850"],
        ["k-means IVF, base encoder (2 lists)", "", "0.357", "0.700"],
        ["exact search, base encoder", "", "", "0.700"],
    ]
    # ehi (0.1125, 0.2125 at 20%, 60% visited) and faiss_ivf (0.075, 0.175 at 30%, 100%); both queries differ alike.
    assert table(report, [0.1, 0.5, 1.0], "R@100")[1][1:4] == [
        ["k-means IVF, base encoder (2 lists)", "", "0.104", "0.175"],
        ["  this index minus it", "", "", "+0.037*"],
        ["  95% interval", "", "", "+0.037…+0.037"],
    ]


def test_queries_that_also_train_are_counted_and_the_others_have_a_row(spec, evaluation):
    """The second query trains, by its text: all systems are measured on the first one too."""
    assert "without those" not in as_markdown(spec, Report.of(spec, evaluation))
    for one in evaluation.seeds:
        one.others = {name: dict.fromkeys(spec.evaluate.measures, 0.1 * one.seed) for name in one.runs}
    counted, cut = {"queries": 2, "by_id": 0, "by_text": 1}, {"families": 60, "shared": "the text"}
    before = replace(evaluation, asked_before=counted, cut=cut)
    report = Report.of(spec, before)
    told = "1 of 2 test queries also train or choose: 0 by id, 1 by text"
    text = as_markdown(spec, report)
    assert text.count(told) == 1
    assert "Dev is cut out of train by 60 families of queries that share the text." in text
    assert text.count("| without those | 0.400 | 0.400 | 0.400 |  |") == len(report.systems)


def test_head_and_tail_by_hand(spec, evaluation):
    """Two queries visit leaves 1 and 2 first. Leaf 1 is the head, because it comes first. Three leaves have 10 rows."""
    for one in evaluation.seeds:
        one.first_Q = np.array([2, 1])
        one.values["ehi"] = {measure: np.array([0.2, 0.6]) for measure in spec.evaluate.measures}
    report = Report.of(spec, evaluation)
    lines = as_markdown(spec, report).partition("## Queries per leaf")[2].splitlines()
    assert [line for line in lines if "leaves |" in line] == [
        "| leaves | rows | queries | nDCG@10 | R@10 | R@100 |",
        "| head: 1 leaves | 30.0% | 1 | 0.600 | 0.600 | 0.600 |",
        "| tail: 1 leaves | 20.0% | 1 | 0.200 | 0.200 | 0.200 |",
        "| unvisited: 1 leaves | 50.0% | 0 |  |  |  |",
    ]


def test_files_hold_every_point_and_run(tmp_path, spec, evaluation, report):
    assert write(spec, evaluation, tmp_path) == report
    assert Report.read(tmp_path / "report.json") == report
    text = (tmp_path / "report.md").read_text()
    assert text == as_markdown(spec, report)
    assert "2 test queries in 2 families, seeds 3, 5. Encoder package:none, trained: head." in text
    assert "ehi: 3 leaves, 1 empty, imbalance 1.55." in text
    assert "| this index (3 leaves) | 0.850 | 0.425 | 0.212 | 60.0% |" in text
    linked = [line.partition("](")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert len(linked) == 3
    assert all((tmp_path / name).is_file() for name in linked)
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == sorted(f"{system}.seed{seed}.trec" for system in report.systems for seed in (3, 5))
    rows = list(csv.DictReader((tmp_path / "curve.csv").read_text().splitlines()))
    assert set(rows[0]) == {"system", "seed"} | POINT - {"per_seed"}
    assert len(rows) == 2 * (3 + 2)
    found = {(row["system"], row["seed"], row["beam"]): row for row in rows}
    assert float(found["ehi", "5", "2"]["nDCG@10"]) == pytest.approx(0.9)
    assert float(found["faiss_ivf", "3", "1"]["visited_mean"]) == pytest.approx(0.3)
    # Blanks inside ids do not break a TREC file.
    read = list(ir_measures.read_trec_run(str(tmp_path / "runs" / "ehi.seed3.trec")))
    assert [(row.query_id, row.doc_id, row.score) for row in read] == [("q%201", "d%202", 0.75), ("q%201", "d1", 0.25)]


def test_what_recall_costs_tells_the_time_of_a_query_where_it_was_measured(spec, trained):
    for result in trained.seeds:
        result.curves["ehi"] = [replace(point, microseconds=1000.0 * point.beam) for point in result.curves["ehi"]]
    report = Report.of(spec, trained)
    exact = report.systems["exact_same_encoder"].measures["R@100"]
    # R@100 is .1125 at the first point, with 1 ms, and .2125 at the second, with 2 ms.
    report.systems["exact_same_encoder"].__pydantic_extra__["R@100"] = 0.1625 / 0.95
    (header, rows), price = reached(report, "R@100"), "40.00% (41.0%, 1.50 ms)"
    assert header[0].startswith("visited (cost, time)")
    assert rows[0][0].startswith("this index")
    assert rows[0][2] == price
    assert all("ms" not in cell for row in rows[1:] for cell in row)
    assert exact > 0
