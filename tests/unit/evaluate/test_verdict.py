"""What a report says in plain lines, on numbers worked out by hand."""

import re

import pytest

from rayhier.evaluate.report import MeanRow, Report, SystemRow
from rayhier.evaluate.tables import encoders
from rayhier.evaluate.verdict import MIDDLING, verdict
from rayhier.model.adoption import Adoption
from rayhier.spec import JobSpec

from .conftest import MEASURES


def row(beam, visited, cost, value):
    costs = {"visited_mean": visited, "visited_p95": visited, "cost_mean": cost, "leaves_mean": beam}
    return MeanRow(beam=beam, **costs, per_seed=[], **dict.fromkeys(MEASURES, value))


def system(value, visited=1.0, beam=None):
    return SystemRow(visited=visited, beam=beam, **dict.fromkeys(MEASURES, value))


@pytest.fixture
def report(spec, evaluation):
    """A large corpus: the index equals exact search at beam 4; IVF needs more."""
    systems = {"ehi": system(0.76, 0.1, 2), "exact_same_encoder": system(0.8), "exact": system(0.7)}
    curves = {
        "ehi": [row(1, 0.05, 0.06, 0.7), row(2, 0.1, 0.12, 0.76), row(4, 0.2, 0.22, 0.7995)],
        "faiss_ivf_same_encoder": [row(1, 0.1, 0.2, 0.7), row(2, 0.3, 0.4, 0.79)],
    }
    changed = {"documents": MIDDLING + 1, "systems": systems, "curves": curves, "encoders": {}, "level": None}
    return Report.of(spec, evaluation).model_copy(update=changed)


def told(spec, report, kind):
    return [line for line in verdict(spec, report) if line.startswith(kind)]


def adoption(adopted):
    gain, queries = (0.021 if adopted else -0.004), {"source": "dev queries", "queries": 300}
    return Adoption(adopted=adopted, mode="hybrid", measure="nDCG@10", base=0.7, gain=gain, error=0.009, **queries)


HNSW = {"hnsw": [row(1, 0.05, 0.01, 0.77)]}
DEAR, NEVER = {"ehi": [row(9, 0.9, 0.95, 0.8)]}, {"ehi": [row(1, 0.05, 0.06, 0.7)]}
CHEAPER = "try another index with the encoder. HNSW reaches 95% of exact R@100 at 1.0% of the cost of exact search"


@pytest.mark.parametrize(
    ("documents", "curves", "said"),
    [
        (500, {}, ["try `rayhier serve w`. Exact search compares 500 documents within a millisecond"]),
        (MIDDLING, HNSW, ["try `rayhier serve w`. Exact search compares 100,000 documents", CHEAPER]),
        (MIDDLING + 1, HNSW, [CHEAPER]),
        (MIDDLING + 1, DEAR, ["search exactly with the encoder. 95% of exact R@100 costs 95% of exact search."]),
        (MIDDLING + 1, NEVER, ["search exactly with the encoder, because this index never reaches 95%"]),
        (MIDDLING + 1, {}, ["serve the index with `rayhier serve "]),
    ],
)
def test_a_better_choice_is_named(documents, curves, said, spec, report):
    kept = {} if curves in (DEAR, NEVER) else report.curves
    found = told(spec, report.model_copy(update={"documents": documents, "curves": kept | curves}), "Next: ")
    assert len(found) == len(said)
    assert all(line.startswith(f"Next: {start}") for line, start in zip(found, said, strict=True))


@pytest.mark.parametrize("adopted", [True, False])
def test_which_encoder_was_kept_is_said_first_and_advice_names_it(adopted, spec, trained, report):
    gained = told(spec, Report.of(spec, trained), "Training")
    for one in trained.seeds:
        one.adoption = adoption(adopted)
    made = Report.of(spec, trained)
    assert made.adoptions == [adoption(adopted)] * 2
    (line,) = told(spec, made, "Training")
    stays = "Training: the trained encoder is not kept, the base encoder stays: 300 dev queries gain -0.4 ± 0.9 points"
    assert line == gained[0] if adopted else line.startswith(stays)
    updated = {"encoders": made.encoders, "adoptions": made.adoptions, "significance": made.significance}
    shown = report.model_copy(update={**updated, "curves": report.curves | HNSW})
    assert f"with the {'trained' if adopted else 'base'} encoder. HNSW" in verdict(spec, shown)[-1]


def test_what_training_gains_for_new_answers_is_said_first(spec, trained):
    (line,) = told(spec, Report.of(spec, trained), "Training: nDCG@10 ")
    assert re.findall(r"\d -> \d.*? for ([\w ]+)", line) == ["queries with new answers", "all queries"]


def test_searches_with_bm25_show_what_training_gains(spec, trained):
    for one in trained.seeds:
        for system, like in (("exact+bm25", "exact_same_encoder"), ("ehi+bm25", "exact")):
            one.values[system], one.rows[system], one.runs[system] = one.values[like], one.rows[like], one.runs[like]
        one.values["ehi"] = one.values["exact"]
    report = Report.of(spec, trained)
    (line,) = told(spec, report, "Training with BM25: nDCG@10 ")
    before, after = (report.systems[name].measures["nDCG@10"] for name in ("exact_same_encoder", "exact"))
    assert f"{before:.3f} -> {after:.3f}" in line
    assert [row[0] for row in encoders(report, ["nDCG@10"])[1] if "all" in row[0]] == [
        "all (2 queries): exact search, base encoder + BM25",
        "all (2 queries): this index + BM25",
        "all (2 queries): exact search, base encoder",
        "all (2 queries): exact search, the index's encoder",
    ]


def test_a_training_without_a_better_epoch_says_so(spec, trained):
    for one in trained.seeds:
        one.best = {"encoder": {"epoch": 0.0}, "router": {"epoch": 3.0}}
    (line,) = told(spec, Report.of(spec, trained), "Training")
    assert line.startswith("Training: no epoch found more on dev than the base encoder (nDCG@10 0.700)")


@pytest.mark.parametrize(
    ("train", "objective", "why"),
    [
        ("none", "auto", "as encoder.train says"),
        ("head", "documents", "as train.objective says"),
        ("head", "auto", "because there are no train judgements"),
    ],
)
def test_an_encoder_that_was_not_trained_says_why_and_the_index_what_it_finds(train, objective, why, spec, report):
    tree = spec.model_dump(mode="json", by_alias=True, include={"name", "workdir", "corpus", "evaluate"})
    tree |= {"encoder": {"model": "package:none", "train": train}, "router": {"type": "retreever"}}
    untrained = JobSpec.model_validate({**tree, "train": {"type": "retreever", "objective": objective}})
    assert verdict(untrained, report)[0] == f"Training: the encoder was not trained, {why}."
    (index,) = told(spec, report, "Index")
    assert index.endswith("finds 95.0% of what exact search finds (R@100), and reads 10.0% of the documents.")


@pytest.mark.parametrize(
    ("difference", "low", "high", "said"),
    [
        (0.2, -0.1, 0.5, ", which may be chance."),
        (-0.02, -0.03, -0.01, " Training made results worse: use the base encoder, with encoder.train=none."),
        (-0.02, -0.03, 0.01, " Training did not help here: use the base encoder, with encoder.train=none."),
        (0.2, 0.1, 0.3, ") for all queries."),
    ],
)
def test_what_training_gained_is_said_with_its_doubt(difference, low, high, said, spec, trained):
    report, change = Report.of(spec, trained), {"difference": difference, "low": low, "high": high}
    rows = [row.model_copy(update=change) for row in report.significance]
    (line,) = told(spec, report.model_copy(update={"significance": rows}), "Training")
    assert line.endswith(said)
