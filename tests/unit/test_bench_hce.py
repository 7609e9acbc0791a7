"""The table of HCE's page that tells near-twins of train queries from other test queries."""

import numpy as np

from benchmarks.hce.bench import Comparison, Split
from benchmarks.hce.rows import PLAIN, UNTOUCHED, J
from benchmarks.hce.twins import TOLD, Twins, family, lines
from rayhier.dataset.queries import Queries
from rayhier.train.examples import Examples

TEXTS = ["zinc cures colds", "zinc cures common colds", "owls hunt", "bats sleep"]


def queries():
    grades = {"0": {"a": 1}, "1": {"b": 1}, "2": {"c": 1}, "3": {"c": 1}}
    return Queries(["0", "1", "2", "3"], np.zeros((4, 2), np.float32), grades, TEXTS)


def test_families_share_words_or_an_answer():
    first, second, third, fourth = family(queries()).tolist()
    assert first == second != third == fourth


def test_groups_have_their_own_means_and_points_above_rows_before():
    measured = {UNTOUCHED.name: [0.2, 0.2, 0.4, 0.4], PLAIN.name: [0.6, 0.8, 0.4, 0.4], J.name: [0.7, 0.7, 0.5, 0.5]}
    found = {name: dict.fromkeys(("nDCG@10", "R@100"), np.array([own])) for name, own in measured.items()}
    examples = Examples(np.zeros((0, 2)), np.zeros((0, 2)), np.empty((0, 2), dtype=np.int64))
    split = Split("test", examples, queries(), np.zeros(4, dtype=bool))
    told = Comparison(split, TOLD, 1, found)
    about, _, head, _, *rows = lines(Twins(told, np.array([True, True, False, False]), np.array([0, 0, 1, 1])))
    assert about == "4 queries in 2 families, one seed; intervals resample families."
    assert head.startswith("|  | queries | nDCG@10 | over untouched | over contrast | R@100 |")
    cells = {row.split(" | ")[0].lstrip("| "): row.split(" | ")[1:5] for row in rows}
    assert cells["near-twins of train queries: untouched"] == ["2", "0.200", "", ""]
    assert cells["near-twins of train queries: contrast, as shipped"] == ["2", "0.700", "+50.0 [+50.0, +50.0]", ""]
    assert cells["no near-twin: J, as shipped"] == ["2", "0.500", "+10.0 [+10.0, +10.0]", "+10.0 [+10.0, +10.0]"]
    assert cells["all: contrast, as shipped"][2] == "+25.0 [+0.0, +50.0]"
    assert not any(row.startswith("| new answers") for row in rows)
