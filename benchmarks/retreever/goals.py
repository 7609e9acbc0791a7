"""Goals that were set before anything was measured, and what came out."""

from collections.abc import Iterator, Mapping

import numpy as np

from benchmarks.retreever.findings import Findings
from benchmarks.retreever.rows import (
    CONSTANT,
    FROM_RANDOM,
    KMEANS,
    LINEAR,
    MIXTURES,
    MLP,
    NO_TREE,
    SHIPPED,
    STOCHASTIC,
    UNTOUCHED,
)
from benchmarks.tables import table

Goal = tuple[str, float, float]
"""What is asked, what came out, and the least that was asked."""
RECALL, NDCG, DEEP = "R@10", "nDCG@10", "R@100"
TREES = (SHIPPED.name, CONSTANT.name, STOCHASTIC.name, MLP.name)


def lines(found: Mapping[str, Findings]) -> list[str]:
    """A table of the goals of the collections that were measured."""
    goals = [(f"{name}: {title}", value, least) for name, own in found.items() for title, value, least in of(own)]
    rows = [(title, f"{value:.3f}", f"{least:g}", verdict(value, least)) for title, value, least in goals]
    return table(["", "value", "at least", ""], rows)


def verdict(value: float, least: float) -> str:
    """Whether a goal is met."""
    return "met" if value >= least else "MISSED"


def of(found: Findings) -> Iterator[Goal]:
    """Goals of one collection."""
    told = found.told
    for measure in (RECALL, NDCG):
        whole = {name: told.mean(name, told.full(name), measure) for name in found.told.found}
        yield f"1,024 numbers over the linear adapter, {measure}", whole[SHIPPED.name] / whole[LINEAR.name], 0.98
        best = max(whole[name] for name in (SHIPPED.name, CONSTANT.name, STOCHASTIC.name))
        yield f"the same, the best schedule of linear splits, {measure}", best / whole[LINEAR.name], 0.98
        points = told.difference(SHIPPED.name, NO_TREE.name, measure).difference
        yield f"1,024 numbers over no tree, {measure}, points", points, -1.0
    if found.name == "oewn_examples":
        points = told.difference(SHIPPED.name, UNTOUCHED.name, RECALL).difference
        yield f"1,024 numbers over the untouched encoder, {RECALL}, points", points, 6.0
    for measure in (RECALL, NDCG):
        own, control = coarse(found, measure)
        yield f"mean of 4 to 32 numbers over the better MRL adapter, {measure}", own / control, 0.90
    for measure in (RECALL, NDCG):
        ratio = told.coarse(STOCHASTIC.name, measure).mean() / told.coarse(CONSTANT.name, measure).mean()
        yield f"mean of 4 to 32 numbers, stochastic over constant, {measure}", ratio, 1.4
        plain = [told.coarse(FROM_RANDOM[name].name, measure).mean() for name in ("stochastic", "constant")]
        yield f"the same from a random start, one seed, {measure}", plain[0] / plain[1], 1.4
    points = told.difference(CONSTANT.name, STOCHASTIC.name, RECALL).difference
    yield "1,024 numbers, constant over stochastic, R@10, points", points, -0.5
    whole_tree = told.mean(SHIPPED.name, told.full(SHIPPED.name), RECALL)
    for name in (KMEANS.name, MIXTURES.name):
        least = 0.5 if found.name == "oewn_examples" else 0.0
        yield (
            f"1 - {name} (best leaf) over the tree's 1,024 numbers, R@10",
            1 - found.leaves[name][RECALL].mean() / whole_tree,
            least,
        )
    cosine, error = (found.similarities[SHIPPED.name][name] for name in ("cosine", "error"))
    yield "cosine of documents, depth 10 over depth 0", float(cosine[-1] - cosine[0]), 0.05
    rise = np.diff(cosine) / np.hypot(error[1:], error[:-1])
    yield "the least rise between neighbouring depths, standard errors of the difference", float(rise.min()), -2.0
    for level, stored in found.stored.items():
        change = abs(float(stored[RECALL].mean() - told.seeds(SHIPPED.name, 2**level, RECALL)[0]))
        yield f"float16 of level {level}, 1 - change of R@10", 1 - change, 0.998
    yield from shortlists(found)
    yield from speeds(found)


def coarse(found: Findings, measure: str) -> tuple[float, float]:
    """Mean over 4 to 32 numbers of the best tree, and of the better MRL adapter."""
    told = found.told
    trees = max(float(told.coarse(name, measure).mean()) for name in TREES)
    adapters = max(float(told.coarse(row.name, measure).mean()) for row in told.rows if row.kind == "matryoshka")
    return trees, adapters


def shortlists(found: Findings) -> Iterator[Goal]:
    """Parts of an exact search that a shortlist of level 6 keeps."""
    exact = found.told.found["trained encoder"][found.told.full("trained encoder")]
    least = {"tree, cosine, 300": (0.98, 0.93), "tree, L1, 1,000": (0.97, 0.90)}
    for name, asked in least.items():
        if name in found.shortlists:
            for measure, share in zip((RECALL, DEEP), asked, strict=True):
                value = found.shortlists[name][measure].mean() / exact[measure][0].mean()
                yield f"level 6 finished by vectors, {name}, part of the exact {measure}", float(value), share


def speeds(found: Findings) -> Iterator[Goal]:
    """How many times as fast few numbers are."""
    if found.times is None:
        return
    batched, alone = found.times.batched, found.times.alone
    vectors = next(name for name in batched if "encoder" in name)
    yield "L1 of 32 over L1 of 1,024 numbers, batches of 64, times as fast", batched["L1, 1024"] / batched["L1, 32"], 20
    yield "L1 of 32 over L1 of 1,024 numbers, alone", alone["L1, 1024"] / alone["L1, 32"], 15
    yield "L1 of 32 numbers over the encoder's inner products, batches of 64", batched[vectors] / batched["L1, 32"], 5
    yield "L1 of 32 numbers over the encoder's inner products, alone", alone[vectors] / alone["L1, 32"], 5
