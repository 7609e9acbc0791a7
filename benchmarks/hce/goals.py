"""Goals that were set before anything was measured, and what came out."""

from collections.abc import Iterator

from benchmarks.goals import Goal
from benchmarks.hce.findings import Comparison, Findings
from benchmarks.hce.rows import PLAIN, UNTOUCHED, J, S, U
from benchmarks.hce.visited import PAIRS, SHARES

NDCG, RECALL = "nDCG@10", "R@100"
PART_OF_GAIN = 80.0
"""Percent of its gain over the untouched encoder that a training should keep where answers are new to it."""


def goals_of(found: Findings) -> Iterator[Goal]:
    """Goals of one collection; none where none was set."""
    if found.name in GOALS:
        yield from GOALS[found.name](found)


def scifact(found: Findings) -> Iterator[Goal]:
    """Contrast, S and J where answers are known and where they are new, and U beside the untouched encoder."""
    assert found.judged is not None
    assert found.alone is not None
    told = found.judged
    plain, hce, joint = (row.name for row in (PLAIN, S, J))
    yield Goal("SciFact: contrast, nDCG@10", told.mean(plain, NDCG), 0.795)
    yield Goal("SciFact: contrast, R@100", told.mean(plain, RECALL), 0.945)
    yield Goal("SciFact: S, nDCG@10", told.mean(hce, NDCG), 0.80)
    over = told.difference(hce, plain, NDCG)
    yield Goal("SciFact: S over contrast, nDCG@10, lower bound, points", over.low, -1.0)
    yield Goal("SciFact: S over contrast, nDCG@10, points (the stretch)", over.difference, 0.5)
    yield Goal("SciFact: J over S, nDCG@10, points", told.difference(joint, hce, NDCG).difference, -0.5)
    for measure, least in ((NDCG, -1.0), (RECALL, -1.5)):
        low = found.alone.difference(U.name, UNTOUCHED.name, measure).low
        yield Goal(f"SciFact: U over untouched, {measure}, lower bound", low, least)
    for row in (PLAIN, S, J):
        yield from new_answers(told, row.name)


def new_answers(told: Comparison, row: str) -> Iterator[Goal]:
    """What a training does to queries whose answers it has not seen, and to all."""
    name = row.partition(",")[0]
    for measure in (NDCG, RECALL):
        value = told.difference(row, UNTOUCHED.name, measure, "new answers").difference
        yield Goal(f"SciFact, new answers: {name} over untouched, {measure}, points", value, -0.5)
    best = max(told.difference(one.name, UNTOUCHED.name, NDCG).difference for one in (PLAIN, S, J))
    gain = told.difference(row, UNTOUCHED.name, NDCG).difference
    yield Goal(f"SciFact: {name}, gain in nDCG@10 on all, % of the greatest", 100 * gain / best, PART_OF_GAIN)


def cranfield(found: Findings) -> Iterator[Goal]:
    """U with the settings of SciFact."""
    assert found.alone is not None
    for measure, stretch in ((NDCG, 1.5), (RECALL, 2.0)):
        value = found.alone.difference(U.name, UNTOUCHED.name, measure).difference
        yield Goal(f"Cranfield: U over untouched, {measure}, points", value, 1.0)
        yield Goal(f"Cranfield: U over untouched, {measure}, points (the stretch)", value, stretch)


def oewn_examples(found: Findings) -> Iterator[Goal]:
    """S beside contrast by exact search, and by leaves at shares visited."""
    assert found.judged is not None
    assert found.visits is not None
    for measure in (NDCG, "R@1"):
        value = found.judged.difference(S.name, PLAIN.name, measure).difference
        yield Goal(f"oewn_examples: S over contrast, {measure}, points", value, -0.3)
    for system, control in PAIRS:
        for share, own in zip(SHARES, found.visits.points(system, control), strict=True):
            yield Goal(f"oewn_examples: {system} over {control}, R@100 at {share:.0%} visited, points", own.value, -0.5)
    system, control = PAIRS[1]
    for share, own in zip(SHARES, found.visits.points(system, control), strict=True):
        yield Goal(
            f"oewn_examples: {system} over {control}, R@100 at {share:.0%}, points (the stretch)", own.value, 0.5
        )


GOALS = {"scifact": scifact, "cranfield": cranfield, "oewn_examples": oewn_examples}
